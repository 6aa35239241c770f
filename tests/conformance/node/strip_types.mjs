// Reads TypeScript and writes JavaScript: the same program with blanks where its types were.
import { readFileSync } from "node:fs";

import { transformSync } from "amaro";

process.stdout.write(transformSync(readFileSync(0, "utf8"), { mode: "strip-only" }).code);
