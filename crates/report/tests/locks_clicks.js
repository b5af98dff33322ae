// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// Clicks through the page of `turbolane bench locks` and leaves what it saw as JSON in #seen. Run by tests/page.rs
// behind the page's own scripts, whose names it may use.

const seen = { errors: [] };
addEventListener("error", (event) => seen.errors.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => seen.errors.push(`refused: ${event.blockedURI}`));

const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const pressed = () => all("#figures button[aria-pressed=true]").map((button) => button.textContent);

/** What is drawn now, panel by panel. */
function drawn() {
  return all("#curves .panel").map((panel) => ({
    about: panel.querySelector("p").textContent,
    points: all("rect.point", panel).length,
    lines: all("path", panel).length,
    evens: all("line.even", panel).length,
    note: panel.querySelector(".note")?.textContent ?? null,
  }));
}

seen.title = document.querySelector("h1").textContent;
seen.legend = all("#legend span").map((entry) => entry.textContent);
seen.clock = { panels: drawn(), pressed: pressed() };
all("rect.point")[0].dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 100, clientY: 100 }));
seen.tip = tip.textContent;
all("#figures button").find((button) => button.textContent === "Energy").click();
seen.energy = { panels: drawn(), pressed: pressed() };
// ASCII only: a printed page writes some characters as entities.
const escape = (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
document.getElementById("seen").textContent = JSON.stringify(seen).replace(/[^ -~]/g, escape);
