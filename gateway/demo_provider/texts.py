"""What the demo models say."""

STORY = """Di tepi Sungai Ciliwung tinggal seekor bangau kecil bernama Sari. Setiap pagi ia menghitung perahu yang \
lewat, dan setiap malam ia lupa jumlahnya. Suatu hari seorang nelayan memberinya seutas tali. "Ikat satu simpul untuk \
setiap perahu," katanya.

Sari tied a knot for each boat, and by the rainy season the string was longer than the river bend. When the flood \
came, the fisherman held on to one end and the crane flew with the other, and nobody who held the string was lost. \
Sejak itu orang di kampung berkata: yang dihitung dengan sabar, kelak menyelamatkan."""

ESSAY = """A river does not hurry, and yet it arrives. What looks like patience is only a great number of small steps, \
each taken as soon as there is room for it. A stream of words is not much different from that.

Whoever listens to a stream wants three things of it. It should begin soon, it should not stop without saying so, and \
it should end when the listener walks away. None of these is about how clever the words are.

To begin soon, pass on what you have. A bucket that waits until it is full is a pond, and a pond is not what anybody \
asked for. The first drop is worth more than the tenth, because it says that the tap is open.

To stop honestly is harder. A dry bed looks the same whether the rain has ended or a dam has closed. So the river \
needs a sign at its mouth, and where the sign is missing, nobody should claim that the sea was reached.

And to end when the listener leaves is a kindness to the mountain. Water that nobody drinks still had to fall \
somewhere. Close the tap at once, write down how much ran, and the mountain will have some for tomorrow.

"""
