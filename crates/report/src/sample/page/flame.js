// SPDX-License-Identifier: MIT OR Apache-2.0
// The flame graph: boxes in boxes, zoom by click, search.

const report = JSON.parse(document.getElementById("report").textContent);

const WIDTH = 1120, ROW = 21, BAND = 4, LETTER = 7.2, NARROWEST = 0.4;

/** Scalar code is grey, whatever colour level 0 has on other pages. */
const colour = (level) => level === 0 ? "var(--line)" : levelColour(level);
const ink = (level) => level === 0 ? "var(--ink)" : level === 1 ? "#1b1f24" : "var(--paper)";
const levelName = (level) => level === 0 ? "scalar" : `level ${level}`;

/** A box: all chains that begin alike. `levels` has its samples by the level of their last frame. */
const box = (parent, name, file, level) =>
  ({ parent, name, file, level, samples: 0, levels: new Map(), below: new Map() });

function add(node, samples, level) {
  node.samples += samples;
  node.levels.set(level, (node.levels.get(level) || 0) + samples);
}

function tree() {
  const root = box(null, "all", null, 0);
  for (const chain of report.chains) {
    const frames = chain.frames.map((index) => report.frames[index]);
    const level = frames.length === 0 ? 0 : frames[frames.length - 1].license_level;
    let node = root;
    add(node, chain.samples, level);
    const process = { function: chain.process, file: null, license_level: 0 };
    for (const [depth, frame] of [process, ...frames].entries()) {
      const key = depth === 0 ? `process ${frame.function}` : chain.frames[depth - 1];
      if (!node.below.has(key)) node.below.set(key, box(node, frame.function, frame.file, frame.license_level));
      node = node.below.get(key);
      add(node, chain.samples, level);
    }
  }
  return root;
}

const root = tree();
let zoomed = root, sought = "";

const share = (samples) => percent(samples / Math.max(1, root.samples));
const contains = (node) => `${node.name}\n${node.file || ""}`.toLowerCase().includes(sought);
const isFound = (node) => sought !== "" && node !== root && contains(node);

/** Levels of a box with their samples, the highest first. */
const levelsOf = (node) => [...node.levels].sort((a, b) => b[0] - a[0]);

/** Samples in boxes that are found, those in others only once; and the boxes' names. */
function found(node, names, isInside = false) {
  const is = isFound(node);
  if (is) names.add(node.name);
  let samples = is && !isInside ? node.samples : 0;
  for (const child of node.below.values()) samples += found(child, names, is || isInside);
  return samples;
}

function facts(node) {
  const rows = [["samples", counted(node.samples)], ["of all samples", share(node.samples)]];
  for (const [level, samples] of levelsOf(node)) {
    if (node.levels.size > 1 || level > 0) rows.push([levelName(level), share(samples)]);
  }
  if (node.file !== null) rows.push(["file", node.file]);
  return rows;
}

function zoom(node) {
  zoomed = node;
  hideTip();
  draw();
}

function drawBox(svg, node, left, width, depth) {
  const top = depth * ROW, height = ROW - 1, levels = levelsOf(node);
  const only = levels.length === 1 ? levels[0][0] : 0;
  const label = `${node.name}: ${counted(node.samples)} samples, ${share(node.samples)}`;
  const open = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); zoom(node); } };
  const dimmed = sought !== "" && !isFound(node);
  const group = make("g", {
    class: isFound(node) ? "box found" : "box", tabindex: 0, role: "button", "aria-label": label,
    opacity: dimmed ? 0.35 : null, cursor: "pointer", onclick: () => zoom(node), onkeydown: open });
  const shown = Math.max(0.2, width - 0.8);
  group.append(make("rect", {
    x: left, y: top, width: shown, height, rx: 2, fill: colour(only), stroke: isFound(node) ? "var(--ink)" : null }));
  if (levels.length > 1) {
    let at = left;
    for (const [level, samples] of levels) {
      const part = shown * samples / node.samples;
      if (level > 0) group.append(make("rect", { x: at, y: top + height - BAND, width: part, height: BAND, fill: colour(level) }));
      at += part;
    }
  }
  const letters = Math.floor((shown - 8) / LETTER);
  if (letters >= 3) {
    const text = node.name.length <= letters ? node.name : node.name.slice(0, letters - 1) + "\u2026";
    group.append(make("text", { x: left + 4, y: top + 14, style: `fill: ${ink(only)}`, "pointer-events": "none" }, text));
  }
  svg.append(withTip(group, node.name, facts(node)));
}

/** Draws a box and what is in it; returns the depth that it needs. */
function drawTree(svg, node, left, width, depth) {
  drawBox(svg, node, left, width, depth);
  let deepest = depth, at = left;
  const children = [...node.below.values()].sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  for (const child of children) {
    const part = width * child.samples / node.samples;
    if (part >= NARROWEST) deepest = Math.max(deepest, drawTree(svg, child, at, part, depth + 1));
    at += part;
  }
  return deepest;
}

function draw() {
  const place = document.getElementById("flame");
  const names = new Set(), samples = sought === "" ? 0 : found(root, names);
  document.getElementById("matches").textContent = sought === "" ? ""
    : `${counted(names.size)} ${names.size === 1 ? "name" : "names"}, ${share(samples)} of samples`;
  document.getElementById("all").disabled = zoomed === root;
  if (root.samples === 0) return place.replaceChildren(make("p", { class: "note" }, "No sample of these processes."));
  const callers = [];
  for (let node = zoomed.parent; node !== null; node = node.parent) callers.unshift(node);
  const svg = make("svg", { role: "group", "aria-label": "Flame graph: share of samples by call chain, coloured by licence level" });
  callers.forEach((node, depth) => drawBox(svg, node, 0, WIDTH, depth));
  const deepest = drawTree(svg, zoomed, 0, WIDTH, callers.length);
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${(deepest + 1) * ROW}`);
  place.replaceChildren(svg);
}

function legend() {
  const item = ([level, samples]) => make("span", {},
    make("i", { style: `background: ${colour(level)}` }), `${levelName(level)}: ${share(samples)}`);
  document.getElementById("flame-legend").replaceChildren(...levelsOf(root).map(item));
}

document.getElementById("search").addEventListener("input", (event) => {
  sought = event.target.value.trim().toLowerCase();
  draw();
});
document.getElementById("all").addEventListener("click", () => zoom(root));
legend();
draw();
