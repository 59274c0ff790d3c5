/** The entry: draw the shell, ask who the caller is. */

import { render } from "preact";
import { identify } from "./session.js";
import { Shell } from "./shell.js";
import "./theme.js";

const root = document.getElementById("app");
if (root === null) throw new Error("expected an element with the id app");
root.replaceChildren(); // index.html's outline of the shell
render(<Shell />, root);
void identify();
