// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// Clicks through the page of `turbolane fleet` and leaves what it saw as JSON in #seen. Run by tests/page.rs after the
// page's own scripts.

const seen = { errors: [] };
addEventListener("error", (event) => seen.errors.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => seen.errors.push(`refused: ${event.blockedURI}`));

const rows = (place) => [...document.querySelectorAll(`#${place} tbody tr`)]
  .map((row) => [...row.children].map((cell) => cell.textContent).join("|"));

seen.about = document.getElementById("about").textContent;
seen.all = rows("machines");
seen.models = rows("models");
seen.services = document.getElementById("services").textContent;
[...document.querySelectorAll("#verdicts button")].find((button) => button.textContent === "Worth it: no").click();
seen.no = rows("machines");
// ASCII only: a printed page writes some characters as entities.
const escape = (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
document.getElementById("seen").textContent = JSON.stringify(seen).replace(/[^ -~]/g, escape);
