// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// Looks at the pages of `turbolane scan`, `verify` and `profile`, and leaves what it saw as JSON in #seen. Run by
// tests/findings/mod.rs after the page's own scripts, whose names it may use.

const seen = { errors: [] };
addEventListener("error", (event) => seen.errors.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => seen.errors.push(`refused: ${event.blockedURI}`));

const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const rows = (selector) => all(`${selector} tbody tr`).map((row) => [...row.children].map((cell) => cell.textContent).join("|"));
const of = (id) => document.getElementById(id)?.textContent ?? null;
const center = (element) => { const box = element.getBoundingClientRect(); return (box.left + box.right) / 2; };

/** What sticks out of the window, apart from what scrolls by itself. */
function cut() {
  const isCut = (element) => element.closest(".scroll") === null && element.getBoundingClientRect().right > innerWidth + 1;
  return all("body *:not(script):not(style)").filter(isCut).map((element) => `${element.tagName} ${element.className}`);
}

function lookAtAll() {
  Object.assign(seen, { title: of("about") === null ? "" : document.querySelector("h1").textContent, about: of("about"), input: of("input") });
  seen.images = all("img, b.bold").length;
  seen.verdict = of("verdict");
  seen.verdict_class = document.getElementById("verdict")?.className ?? null;
}

function lookAtScan() {
  seen.files = rows("#files");
  seen.open = all("#functions details").map((details) => details.open);
  all("#files a")[0].click();
  const first = all("#functions details")[0];
  // The event of unfolding comes later.
  first.dispatchEvent(new Event("toggle"));
  seen.facts = all("#functions details li").map((fact) => fact.textContent);
  seen.functions = rows("#functions details");
  const field = document.getElementById("search");
  field.value = "NEEDLE";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  seen.found = rows("#files");
  seen.found_functions = rows("#functions details");
  seen.matches = of("matches");
}

function lookAtVerify() {
  seen.notes = all("#notes li").map((line) => line.textContent);
  seen.panels = all("#figures .panel").map((panel) => ({
    name: panel.querySelector("h3").textContent, text: panel.querySelector("p").textContent,
    a: all("rect.run.A", panel).length, b: all("rect.run.B", panel).length,
    // Left of, and right of, as the figures say.
    medians: all("rect.median", panel).map(center), interval: [...all("rect.interval", panel)].map((one) => {
      const box = one.getBoundingClientRect();
      return [box.left, box.right];
    })[0],
    points: all("rect.run.B", panel).map(center),
  }));
  const dot = all("rect.run.A")[0];
  dot.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 10, clientY: 10 }));
  seen.tip = tip.textContent;
  tip.hidden = true;
  document.querySelector("#h-runs ~ details").open = true;
  seen.runs = rows("#runs");
}

function lookAtProfile() {
  seen.truth = of("truth");
  const width = (kind) => all(`#bars rect.${kind}`).map((one) => Number(one.getAttribute("width")));
  seen.bars = { needed: width("needed"), avoidable: width("avoidable"), unknown: width("unknown"), interval: width("interval") };
  seen.levels = rows("#levels");
  seen.none = document.getElementById("levels").textContent;
}

lookAtAll();
if (document.getElementById("files")) lookAtScan();
if (document.getElementById("figures")) lookAtVerify();
if (document.getElementById("bars")) lookAtProfile();
seen.width = innerWidth;
seen.cut = cut();
seen.scrolls = document.documentElement.scrollWidth > innerWidth;
// ASCII only: a printed page writes some characters as entities.
const escape = (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
document.getElementById("seen").textContent = JSON.stringify(seen).replace(/[^ -~]/g, escape);
