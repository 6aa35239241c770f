"""What the guard `pii` has to find, and what it has to leave alone. All numbers are made up."""

from __future__ import annotations

NIK, WOMAN, KK = "3171012301900001", "3273015504850003", "3174092511180012"
NPWP, CARD, AMEX = "092542943407000", "4111111111111111", "378282246310005"
NRIC, IBAN = "S1234567D", "GB82WEST12345698765432"
MAIL, MOBILE, BCA = "jane.doe@example.com", "081234567890", "1234567890"

# A text, and what is in it: kind and piece.
FOUND: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (f"NIK saya {NIK}.", (("nik", NIK),)),
    (f"ibu {WOMAN}", (("nik", WOMAN),)),
    (f"NIK{NIK}", (("nik", NIK),)),
    (f'{{"nik":"{NIK}","umur":34}}', (("nik", NIK),)),
    ("ktp 3171 0123 0190 0001 dan", (("nik", "3171 0123 0190 0001"),)),
    ("31.71.01.230190.0001", (("nik", "31.71.01.230190.0001"),)),
    ("317101-230190-0001", (("nik", "317101-230190-0001"),)),
    ("3 1 7 1 0 1 2 3 0 1 9 0 0 0 0 1", (("nik", "3 1 7 1 0 1 2 3 0 1 9 0 0 0 0 1"),)),
    ("31-71-01-23-01-90-00-01", (("nik", "31-71-01-23-01-90-00-01"),)),
    ("nomor NIK: 31710 12301 900001", (("nik", "31710 12301 900001"),)),
    (f"{NIK},{MOBILE},{MAIL}", (("nik", NIK), ("phone", MOBILE), ("email", MAIL))),
    (f"{NIK} {WOMAN} {MOBILE}", (("nik", NIK), ("nik", WOMAN), ("phone", MOBILE))),
    (f"No. KK: {KK}", (("kk", KK),)),
    (f"kartu keluarga {KK}, NIK {NIK}", (("kk", KK), ("nik", NIK))),
    (f"nomorKartuKeluarga={KK}", (("kk", KK),)),
    (f"family card {KK}", (("kk", KK),)),
    ("09.254.294.3-407.000", (("npwp", "09.254.294.3-407.000"),)),
    (f"NPWP {NPWP}", (("npwp", NPWP),)),
    (f"NPWP 16 digit: 0{NPWP}", (("npwp", f"0{NPWP}"),)),
    (f"NPWP {NIK}", (("npwp", NIK),)),
    ("paspor B1234567", (("passport", "B1234567"),)),
    ("Passport number: X 123456", (("passport", "X 123456"),)),
    ("paspornya AT123456 hilang", (("passport", "AT123456"),)),
    ("BPJS Kesehatan 0001234567890", (("bpjs", "0001234567890"),)),
    ("nomor BPJS: 0001-2345-67890", (("bpjs", "0001-2345-67890"),)),
    ("KPJ 12034567891", (("bpjs", "12034567891"),)),
    ("mobil dengan plat B 1234 XYZ", (("plate", "B 1234 XYZ"),)),
    ("nopol: AB1234CD", (("plate", "AB1234CD"),)),
    ("kendaraan dk 12 ab", (("plate", "dk 12 ab"),)),
    (f"rekening BCA {BCA} a.n. Budi", (("bank_account", BCA),)),
    ("transfer ke Mandiri 1370012345678", (("bank_account", "1370012345678"),)),
    ("norek 0234-01-012345-50-1 BRI", (("bank_account", "0234-01-012345-50-1"),)),
    (f"no_rekening: {BCA}, 0987654321", (("bank_account", BCA), ("bank_account", "0987654321"))),
    ("bank account 123-456-789", (("bank_account", "123-456-789"),)),
    (f"WA {MOBILE} ya", (("phone", MOBILE),)),
    ("0812-3456-7890", (("phone", "0812-3456-7890"),)),
    ("0812 3456 789", (("phone", "0812 3456 789"),)),
    ("0857.1234.5678", (("phone", "0857.1234.5678"),)),
    ("+62 812-3456-7890", (("phone", "+62 812-3456-7890"),)),
    ("(+62) 81234567890", (("phone", "(+62) 81234567890"),)),
    ("+6281234567890", (("phone", "+6281234567890"),)),
    ("6281234567890", (("phone", "6281234567890"),)),
    ("wa.me/6281234567890", (("phone", "6281234567890"),)),
    ("kantor (021) 555-1234", (("phone", "(021) 555-1234"),)),
    ("+62 21 5551234", (("phone", "+62 21 5551234"),)),
    ("telp 021-5551234", (("phone", "021-5551234"),)),
    ("hp 812 3456 7890", (("phone", "812 3456 7890"),)),
    ("+65 9123 4567", (("phone", "+65 9123 4567"),)),
    ("call me at 9123 4567", (("phone", "9123 4567"),)),
    ("mobile: 6591234567", (("phone", "6591234567"),)),
    (f"my NRIC is {NRIC}.", (("nric", NRIC),)),
    ("S 1234567 D", (("nric", "S 1234567 D"),)),
    ("s1234567d", (("nric", "s1234567d"),)),
    ("T1234567J F1234567N", (("nric", "T1234567J"), ("nric", "F1234567N"))),
    ("G1234567X M1234567K", (("nric", "G1234567X"), ("nric", "M1234567K"))),
    (f"kirim ke {MAIL}, ya", (("email", MAIL),)),
    (f"<{MAIL}>", (("email", MAIL),)),
    (f"mailto:{MAIL}?subject=x", (("email", MAIL),)),
    ("a.b+c_d%e@mail.example.co.id.", (("email", "a.b+c_d%e@mail.example.co.id"),)),
    ("josé@exámple.com", (("email", "josé@exámple.com"),)),
    (f"请联系{MAIL}谢谢", (("email", MAIL),)),
    (f"a@b.co,{MAIL}", (("email", "a@b.co"), ("email", MAIL))),
    ("card 4111 1111 1111 1111", (("card", "4111 1111 1111 1111"),)),
    (f"{CARD} exp 12/29", (("card", CARD),)),
    ("4111-1111-1111-1111", (("card", "4111-1111-1111-1111"),)),
    (f"amex {AMEX}", (("card", AMEX),)),
    ("3782 822463 10005", (("card", "3782 822463 10005"),)),
    ("5555555555554444 2223003122003222", (("card", "5555555555554444"), ("card", "2223003122003222"))),
    ("6011111111111117, 3530111333300000", (("card", "6011111111111117"), ("card", "3530111333300000"))),
    ("diners 30569309025904", (("card", "30569309025904"),)),
    ("card 4000000000000000006", (("card", "4000000000000000006"),)),
    ("4000 0000 0000 0000 006", (("card", "4000 0000 0000 0000 006"),)),
    ("6200000000000005", (("card", "6200000000000005"),)),
    ("GB82 WEST 1234 5698 7654 32", (("iban", "GB82 WEST 1234 5698 7654 32"),)),
    (f"IBAN:{IBAN}", (("iban", IBAN),)),
    ("de89 3704 0044 0532 0130 00", (("iban", "de89 3704 0044 0532 0130 00"),)),
    ("GB82 GB82 WEST 1234 5698 7654 32 for", (("iban", "GB82 WEST 1234 5698 7654 32"),)),
    ("from 118.99.12.4 today", (("ip", "118.99.12.4"),)),
    ("http://118.99.12.4:8080/", (("ip", "118.99.12.4"),)),
    ("2404:6800:4003:c00::65", (("ip", "2404:6800:4003:c00::65"),)),
    ("[2404:6800:4003:0c00:0000:0000:0000:0065]:443", (("ip", "2404:6800:4003:0c00:0000:0000:0000:0065"),)),
    # in disguise
    ("４１１１ １１１１ １１１１ １１１１", (("card", "４１１１ １１１１ １１１１ １１１１"),)),
    ("３１７１０１２３０１９０００01", (("nik", "３１７１０１２３０１９０００01"),)),
    ("٣١٧١٠١٢٣٠١٩٠٠٠٠١", (("nik", "٣١٧١٠١٢٣٠١٩٠٠٠٠١"),)),
    ("3171\u200b0123\u200b0190\u200b0001", (("nik", "3171\u200b0123\u200b0190\u200b0001"),)),
    ("\u200b31710123\u00ad01900001\u200b", (("nik", "31710123\u00ad01900001"),)),
    ("0812\u20113456\u20117890", (("phone", "0812\u20113456\u20117890"),)),
    ("4111\u00a01111\u00a01111\u00a01111", (("card", "4111\u00a01111\u00a01111\u00a01111"),)),
    ("jane.doe＠example．com", (("email", "jane.doe＠example．com"),)),
    ("jane.\u200bdoe@exam\u200bple.com", (("email", "jane.\u200bdoe@exam\u200bple.com"),)),
    ("Ｓ1234567Ｄ", (("nric", "Ｓ1234567Ｄ"),)),
    ("3️⃣1️⃣7️⃣1️⃣0️⃣1️⃣2️⃣3️⃣0️⃣1️⃣9️⃣0️⃣0️⃣0️⃣0️⃣1️⃣", (("nik", "3️⃣1️⃣7️⃣1️⃣0️⃣1️⃣2️⃣3️⃣0️⃣1️⃣9️⃣0️⃣0️⃣0️⃣0️⃣1"),)),
)  # fmt: skip

# Of each kind, what misses by one thing that is looked at besides the shape.
NEAR_MISSES = (
    "NIK 2071012301900001",  # no such province
    "NIK 3150012301900001",  # no such regency
    "NIK 3171002301900001",  # no district
    "NIK 3171013301900001",  # day 33
    "NIK 3171017201900001",  # day 72
    "NIK 3171012313900001",  # month 13
    "NIK 3171012902910001",  # 29 February 1991
    "NIK 3171013104900001",  # 31 April
    "NIK 3171012301900000",  # serial 0
    "NIK 31710123019000012",  # 17 digits
    "KK 3171015504850003",  # a woman's day of birth, on a family card: a NIK, see below
    "09.254.294.4-407.000",  # check digit
    "NPWP 092542944407000",
    "09.254.294.3-000.000",  # no tax office
    f"{NPWP}",  # no word, no grouping
    "B1234567",  # no word
    "paspor B12345",
    "0001234567890",  # no word
    "BPJS 1001234567890",
    "B 1234 XYZ",  # no word
    "plat I 1234 XYZ",  # no such region
    "plat B 0123 XYZ",
    "BCA 123456789",  # nine digits; accounts there have ten
    "rekening 1234567",
    "1234567890",
    "rekening 1111111111",
    "08001234567",  # no operator
    "081234567",  # too short
    "08123456789012",  # too long
    "91234567",  # no word
    "021-5551234",
    "S1234567A",
    "T1234567D",
    "M1234567X",
    "4111 1111 1111 1112",
    "7911111111111111",  # no issuer
    "411111111111111",  # 15 digits
    "GB82 WEST 1234 5698 7654 33",
    "GB82 WEST 1234 5698 7654 3",
    "ZZ82 WEST 1234 5698 7654 32",
    "jane@example",
    "jane@example.c",
    "@example.com",
    "jane..doe@.com",
    "300.1.2.3",
    "118.99.12.04",
    "118.99.12",
    "2404:6800:4003",
)  # fmt: skip

# What is no personal data, and looks it.
BENIGN = (
    "order 2026-08-31 10:22:33",
    "550e8400-e29b-41d4-a716-446655440000",
    "12345678-1234-1234-1234-081234567890",
    "2026-08-31T10:22:33.123456789Z INFO http: GET /v1/items?id=1709876543 200 1234us 10.0.0.12",
    "127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /apache_pb.gif HTTP/1.0\" 200 2326",
    "192.168.1.10, 172.16.0.1, 169.254.1.1, 203.0.113.9, 8.8.8.8, 0.0.0.0, 255.255.255.0",
    "version 1.2.3.4, v10.15.7.3, aiohttp==3.14.5.1, section 3.1.4.2",
    "order 1234567890, invoice INV/2024/03/000123, resi JP1234567890, SKU 8991002101234",
    "pesanan nomor 3171012301900001",
    "ISBN 978-602-8519-93-9 dan ISBN 9786028519939, EAN 8999999001234",
    "epoch 1709876543, 1709876543123, 1709876543123456",
    "Rp 12.345.678.900,00 + IDR 1.250.000.000 = $1,234,567.89; Rp12.500.000",
    "3.14159265358979323846264338327950288",
    "0.3171012301900001",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "d41d8cd98f00b204e9800998ecf8427e 3171012301900001abcdef",
    "commit 4111111111111111111111111111111111111111",
    "x = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]",
    "1 0 0 1 1 0 1 0 0 1 1 1 0 1 0 1 0 0 1 0 1 1 0",
    "0x4111111111111111, 4111111111111111n, id_3171012301900001, ORD3171012301900001",
    "@app.route('/x')\ndef f(a: int) -> int: return a @ b.T",
    "icon@2x.png, logo@3x.jpg, pkg@1.2.3, vite@latest, git@github.com:org/repo.git",
    "std::cafe::babe, a::b, ::1, fe80::1, 2001:db8::1, 10:22:33, 2024:10:22",
    "2019-2020-2021-2022, 1990-1991",
    "12/03/2024 08123456, 2024-03-12 0812345678",
    "-6.200000, 106.816666; 1920x1080; 16777216; 4294967296; 2147483647; 9007199254740991",
    "lat 6.2088000123456, build 20240312.1234567890",
    "data:image/png;base64,iVBORw0KGgo081234567890AAAANSUhEUgAA3171012301900001/jane@example.com",
    "NIK (Nomor Induk Kependudukan) memuat 16 digit; KK juga. NPWP memuat 15 digit.",
    "Toko buka 08.00-17.00, Senin 08:00, kode pos 12345, RT 001/RW 002",
    "pasal 27 ayat 3 UU 11/2008, halaman 1234-1240",
    "tel: -, hp: -, rekening: -, e-mail: -",
    "SELECT id, email FROM users WHERE phone = ? LIMIT 100 OFFSET 20000000",
    "[NIK_1] [KK_2] [BANK_ACCOUNT_3] 1234567890 [EMAIL_1]@[EMAIL_2] [PHONE_12]",
    "IMEI 490154203237518, seri 356938035643809",
    "a1b2c3d4e5f60718, deadbeef12345678, 1e10, 1.5e-300, 12345678e4",
    "MAC 00:1A:2B:3C:4D:5E, serial number 81234567890123",
    "Undang-Undang 1945, tahun 1998 sampai 2004, suhu 27-31 C, 15.000 penonton",
    "S1234567 adalah nomor model, T800, F16, G7, M1",
    "08/11/04 08/12/04 08/13/04 08/14/04, 6.28318530718, 0.0628560371629 0.0400426, oid 2.5.29.32",
    "493570806, 5749986484189612790, -8204893, 573763426263223372",
    "https://foo:bar@bar.com/path, 2620:4f:8000::/48",
    "1/2/3/4/5/6/7/8 dan 10-20-30-40-50-60-70",
)  # fmt: skip
