// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// Clicks through a report's page and leaves what it saw as JSON in #seen. Run by tests/page.rs
// behind the page's own scripts, whose names it may use.

const seen = { errors: [] };
addEventListener("error", (event) => seen.errors.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => seen.errors.push(`refused: ${event.blockedURI}`));

const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const textOf = (selector, from = document) => from.querySelector(selector).textContent;

// Frames are drawn when the clicks say so: a headless browser under load gives none for seconds.
const frames = [];
window.requestAnimationFrame = (draw) => frames.push(draw);
waiting = false;
drawSoon();
const frame = () => frames.splice(0).forEach((draw) => draw());

/** A pointer event in the middle of an element, or at a place in it. */
function point(element, type, x, y) {
  const box = element.getBoundingClientRect();
  const at = { clientX: box.left + (x ?? box.width / 2), clientY: box.top + (y ?? box.height / 2) };
  element.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0, ...at }));
}

function lookAtSummary() {
  seen.title = textOf("h1");
  seen.input = textOf("#input");
  seen.rows = all("#summary tbody tr:not(.machine)").length;
  seen.images = all("img").length;
  const lane = all("#summary tbody tr").find((row) => row.textContent.includes("static-2"));
  seen.level_cells = all("#summary tbody tr:not(.machine)").map((row) => {
    const heads = all("#summary thead th").map((head) => head.firstChild.textContent);
    return row.children[heads.indexOf("Level > 0")]?.textContent;
  });
  seen.lane_row = lane ? lane.textContent : "";
  // Columns: policy, load, change, work.
  seen.best = all("#summary tbody td:nth-child(4).best").map((cell) => cell.textContent);
}

function clickFigures() {
  const buttons = all("#metrics button");
  if (!buttons.length) return;
  seen.bars_work = textOf("#bars");
  buttons.find((button) => button.textContent === "Clock").click();
  seen.bars_clock = textOf("#bars");
  seen.pressed = buttons.filter((button) => button.getAttribute("aria-pressed") === "true").length;
  point(all("#bars g.bar")[1], "pointermove");
  seen.bar_tip = tip.textContent;
  point(all("#bars g.bar")[1], "pointerleave");
  if (!tip.hidden) seen.errors.push("the tooltip stays");
}

function lookAtResidency() {
  const cpus = all("#residency g.cpu");
  seen.cpus = cpus.length;
  if (!cpus.length) return;
  const heights = all("rect", cpus[0]).map((rect) => Number(rect.getAttribute("height")));
  seen.bar_heights = heights.reduce((sum, height) => sum + height, 0);
  point(cpus[seen.cpus / report.runs.length], "pointermove");
  seen.cpu_tip = tip.textContent;
  hideTip();
}

/** How many pixels of the canvases have each of the style's colours. */
function countColours() {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const wanted = {};
  for (const name of ["l0", "l1", "l2", "offender", "victim", "slowed"]) {
    probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
    probe.fillRect(0, 0, 1, 1);
    wanted[name] = probe.getImageData(0, 0, 1, 1).data.slice(0, 3).join();
  }
  const counts = Object.fromEntries(Object.keys(wanted).map((name) => [name, 0]));
  for (const { canvas } of view.panels) {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) {
      if (data[at + 3] !== 255) continue;
      const colour = `${data[at]},${data[at + 1]},${data[at + 2]}`;
      for (const name in wanted) if (wanted[name] === colour) counts[name]++;
    }
  }
  return counts;
}

function clickTimeline() {
  seen.timeline_hidden = document.getElementById("timeline-section").hidden;
  if (seen.timeline_hidden) return;
  frame();
  const panel = view.panels[0];
  const { canvas } = panel;
  const middle = (frac) => GUTTER + frac * panel.plot.width;
  seen.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  seen.panels = all("#timeline .panel").length;
  seen.colours = countColours();
  seen.height_few = canvas.clientHeight;

  document.getElementById("all-cores").click();
  frame();
  seen.height_all = canvas.clientHeight;
  point(canvas, "pointermove", middle(0.5), 40);
  seen.core_tip = tip.textContent;
  seen.window_all = textOf("#window");

  point(canvas, "pointerdown", middle(0.25), 40);
  point(canvas, "pointermove", middle(0.5), 40);
  point(canvas, "pointerup", middle(0.5), 40);
  seen.window_dragged = textOf("#window");
  document.getElementById("zoom-in").click();
  seen.window_button = textOf("#window");
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  seen.window_key = textOf("#window");
  canvas.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
  seen.window_back = textOf("#window");

  // A halt is 10 us long: it has to be found by zooming to one.
  const core = panel.rows[0].core;
  const halt = core.clock_khz.indexOf(0);
  zoomTo(core.at_ns[halt], core.at_ns[halt + 1]);
  frame();
  point(canvas, "pointermove", middle(0.5), 40);
  seen.halt_tip = tip.textContent;
  document.getElementById("zoom-all").click();

  const choice = all("#timeline-tools select")[0];
  choice.value = "1";
  choice.dispatchEvent(new Event("change"));
  frame();
  seen.other_policy = textOf("#timeline .panel h3");
}

try {
  lookAtSummary();
  clickFigures();
  lookAtResidency();
  clickTimeline();
} catch (error) {
  seen.errors.push(String(error && error.stack));
}
// ASCII only: a printed page writes some characters as entities.
const escape = (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
document.getElementById("seen").textContent = JSON.stringify(seen).replace(/[^ -~]/g, escape);
