// SPDX-License-Identifier: MIT OR Apache-2.0
// The verdict, a bar for each level, and the table.

const report = JSON.parse(document.getElementById("report").textContent);

const WIDTH = 1100, LEFT = 80, RIGHT = 1060, ROW = 46, TOP = 6;

const pct = (value, decimals = 1) => value === null ? NONE : `${value.toFixed(decimals)}\u00a0%`;
const present = report.levels.filter((level) => level.seen > 0);

function verdict() {
  if (report.reduced_pct === null) return "No core was busy.";
  if (report.avoidable_pct === null) return "No core was at a reduced level.";
  const part = report.reduced_pct * report.avoidable_pct / 100;
  return `${pct(part)} of busy time was avoidable: ${pct(report.reduced_pct)} was at a reduced level, and ${pct(report.avoidable_pct)} of that was not needed.`;
}

/** From 0 to a round figure above the level that was seen most. */
function axis() {
  const most = Math.max(...present.map((level) => level.busy_pct));
  const step = tickStep(most, 6);
  return { step, end: Math.max(step, step * Math.ceil(most / step)) };
}

function bar(level, y, x) {
  const colour = levelColour(level.license_level);
  const box = (kind, from, to, attributes) => make("rect", { class: kind, x: x(from), y: y + 8, width: Math.max(0, x(to) - x(from)), height: 26, ...attributes });
  const parts = [];
  if (level.needed_pct === null) {
    parts.push(box("unknown", 0, level.busy_pct, { fill: "var(--line)" }));
  } else {
    const border = level.busy_pct * level.needed_pct / 100;
    parts.push(box("needed", 0, border, { fill: colour }));
    parts.push(box("avoidable", border, level.busy_pct, { fill: colour, "fill-opacity": 0.35, stroke: colour }));
  }
  if (level.avoidable_low_pct !== null && level.avoidable_high_pct !== null) {
    const [from, to] = [level.avoidable_high_pct, level.avoidable_low_pct].map((avoidable) => x(level.busy_pct * (1 - avoidable / 100)));
    parts.push(make("rect", { class: "interval", x: from, y: y + 19.5, width: Math.max(1, to - from), height: 3, fill: "var(--ink)" }));
  }
  const group = make("g", { class: "level" }, make("text", { x: LEFT - 12, y: y + 26, "text-anchor": "end" }, `level ${level.license_level}`), ...parts);
  return withTip(group, `level ${level.license_level}`, [["of busy time", pct(level.busy_pct)], ["needed", pct(level.needed_pct)],
    ["avoidable", pct(level.avoidable_pct)], ["95 % interval", interval(level)], ["samples", counted(level.seen)]]);
}

function interval(level) {
  const { avoidable_low_pct: low, avoidable_high_pct: high } = level;
  return low === null || high === null ? NONE : `${low.toFixed(1)} to ${pct(high)}`;
}

function drawBars() {
  const { step, end } = axis();
  const x = (value) => LEFT + (RIGHT - LEFT) * value / end;
  const bottom = TOP + ROW * present.length;
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${bottom + 26}`, role: "img", "aria-label": "Busy time at each reduced level, needed and avoidable" });
  for (let at = 0; at <= end + step / 2; at += step) {
    svg.append(make("line", { x1: x(at), x2: x(at), y1: TOP, y2: bottom, stroke: "var(--grid)" }));
    svg.append(make("text", { x: x(at), y: bottom + 18, "text-anchor": "middle", class: "soft" }, `${short(digits(at, 3))}\u00a0%`));
  }
  svg.append(...present.map((level, at) => bar(level, TOP + ROW * at, x)));
  put("bars", svg);
  const entry = (style, text) => make("span", {}, make("i", { style }), text);
  put("legend", entry("background: var(--l2)", "needed"), entry("background: var(--l2); opacity: 0.4", "avoidable"),
    entry("background: var(--line)", "not judged"));
}

document.getElementById("about").textContent =
  `${counted(report.samples)} samples, one in ${time(report.interval_ns)} of load; each with a pause of ${time(report.pause_ns)} and an observation of ${time(report.watch_ns)}`;
const inputs = [["Machine", report.machine], ["Scheduler", report.policy], ...(report.variant === null ? [] : [["Variant", report.variant]])];
put("input", ...inputs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
document.getElementById("verdict").textContent = verdict();
if (report.truth) {
  const { reduced_pct: reduced, avoidable_pct: avoidable } = report.truth;
  document.getElementById("truth").textContent = `Ground truth of the simulation: ${pct(reduced)} of busy time at a reduced level`
    + (avoidable === null ? "." : `, ${pct(avoidable)} of that avoidable.`);
}
if (present.length > 0) drawBars();
put("levels", tableOf([
  ["Level", false, (level) => String(level.license_level)],
  ["Of busy time", false, (level) => pct(level.busy_pct)],
  ["Needed", false, (level) => pct(level.needed_pct)],
  ["Avoidable", false, (level) => pct(level.avoidable_pct)],
  ["95 % interval", false, interval],
  ["Samples", false, (level) => counted(level.seen)],
  ["Not judged", false, (level) => counted(level.held)],
], present, "No core was seen at a reduced level."));
