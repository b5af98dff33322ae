// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// Clicks through the page of `turbolane sample` and leaves what it saw as JSON in #seen. Run by tests/page.rs after the
// page's own scripts.

const seen = { errors: [] };
addEventListener("error", (event) => seen.errors.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => seen.errors.push(`refused: ${event.blockedURI}`));

const boxes = () => [...document.querySelectorAll("#flame g.box")];
const labels = () => boxes().map((group) => group.getAttribute("aria-label"));
const named = (name) => boxes().find((group) => group.getAttribute("aria-label").startsWith(`${name}:`));
const widthOf = (name) => Number(named(name).querySelector("rect").getAttribute("width"));
const fillOf = (name) => named(name).querySelector("rect").getAttribute("fill");

seen.title = document.querySelector("h1").textContent;
seen.graph = document.querySelector("#flame svg").getAttribute("aria-label");
seen.legend = document.getElementById("flame-legend").textContent;
seen.boxes = labels();
seen.wide_share = widthOf("wide_function") / widthOf("all");
seen.fills = [fillOf("wide_function"), fillOf("[main]"), fillOf("all")];
const at = named("wide_function").getBoundingClientRect();
named("wide_function").dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: at.left, clientY: at.top }));
seen.tip = tip.textContent;
named("wide_function").dispatchEvent(new PointerEvent("click", { bubbles: true }));
seen.zoomed_share = widthOf("wide_function") / widthOf("all");
seen.zoomed = labels();
document.getElementById("all").click();
seen.back = labels();
const field = document.getElementById("search");
field.value = "WIDE_";
field.dispatchEvent(new Event("input", { bubbles: true }));
seen.found = document.querySelectorAll("#flame g.found").length;
seen.matches = document.getElementById("matches").textContent;
seen.functions = [...document.querySelectorAll("#functions tbody tr")].map((row) => row.firstChild.textContent);
seen.images = document.querySelectorAll("img").length;
// ASCII only: a printed page writes some characters as entities.
const escape = (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
document.getElementById("seen").textContent = JSON.stringify(seen).replace(/[^ -~]/g, escape);
