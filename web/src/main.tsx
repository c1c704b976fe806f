import { render } from "preact";
import { takeKeyFromAddress } from "./api/key";
import { completeLogin } from "./api/login";
import { App } from "./shell/App";
import "./styles/index.css";

takeKeyFromAddress();
addEventListener("hashchange", takeKeyFromAddress);

const root = document.getElementById("app");
if (root !== null) void completeLogin().then(() => render(<App />, root));
