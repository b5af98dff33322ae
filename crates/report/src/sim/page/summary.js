// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// The table of policies, the bar chart of one figure, and the residency of each CPU.

const report = JSON.parse(document.getElementById("report").textContent);

/** The run that others on its machine are compared with: the first one. */
const baseOf = (run) => report.runs.find((other) => other.machine.id === run.machine.id);
const machines = [...new Map(report.runs.map((run) => [run.machine.id, run.machine])).values()];
const raised = (run) => run.total.residency_frac.slice(1).reduce((sum, frac) => sum + frac, 0);
/** Of the CPU time of one load, as LEVEL>0 in the text; as there, nothing of a load that never ran. */
const reduced = (run, load) => (Number.isFinite(load.mean_khz) ? load.reduced_frac : null);
const loadOf = (run, name) => run.loads.find((load) => load.name === name);

function gain(run, load) {
  const base = baseOf(run);
  const before = base === run ? null : loadOf(base, load.name);
  if (!before || !before.work_per_s || !load.work_per_s) return null;
  return 100 * (load.work_per_s / before.work_per_s - 1);
}

/** What the table and the bar chart show of a run and one of its loads. `sign` 1: more is better. */
const METRICS = [
  { name: "Work", unit: "per s", of: (run, load) => load.work_per_s, show: number, sign: 1 },
  { name: "CPU time", unit: "per unit of work", of: (run, load) => load.cpu_per_work_ns, show: time, sign: -1 },
  { name: "Median", unit: "response time", of: (run, load) => load.latency && load.latency.p50_ns, show: time, sign: -1 },
  { name: "99th percentile", unit: "response time", of: (run, load) => load.latency && load.latency.p99_ns, show: time, sign: -1 },
  { name: "Clock", unit: "mean, of this load", of: (run, load) => load.mean_khz, show: clock, sign: 1 },
  { name: "Level > 0", unit: "of this load's time", of: reduced, show: percent, sign: -1 },
  { name: "All CPUs: clock", unit: "mean while busy", whole: true, of: (run) => run.total.mean_khz, show: clock, sign: 1 },
  { name: "All CPUs: level > 0", unit: "of their busy time", whole: true, of: raised, show: percent, sign: -1 },
  { name: "Migrations", unit: "per s", whole: true, of: (run) => run.total.migrations_per_s, show: number, sign: 0 },
  { name: "Energy", unit: "estimated, J", whole: true, of: (run) => run.total.energy_j, show: number, sign: -1 },
];

/** Metrics that some run has a value for. */
const shown = METRICS.filter((metric) =>
  report.runs.some((run) => run.loads.some((load) => Number.isFinite(metric.of(run, load)))));

/** Best value of a metric among the runs of one machine, where one is better and they differ. */
function best(metric, machine, loadName) {
  const runs = report.runs.filter((run) => run.machine.id === machine.id);
  const values = runs
    .map((run) => [run, loadOf(run, loadName)])
    .filter(([, load]) => load)
    .map(([run, load]) => metric.of(run, load))
    .filter(Number.isFinite);
  const most = metric.sign > 0 ? Math.max(...values) : Math.min(...values);
  return metric.sign === 0 || values.length < 2 || values.every((value) => value === most) ? null : most;
}

function summary() {
  const heads = shown.map((metric) => make("th", { title: metric.unit }, metric.name, make("br"), make("span", { class: "soft" }, metric.unit)));
  const head = make("tr", {}, make("th", {}, "Policy"), make("th", { class: "text" }, "Load"), make("th", {}, "Change"), ...heads);
  const body = make("tbody", {});
  for (const machine of machines) {
    if (machines.length > 1) body.append(make("tr", { class: "machine" }, make("td", { colspan: shown.length + 3 }, machine.name)));
    for (const run of report.runs.filter((one) => one.machine.id === machine.id)) {
      run.loads.forEach((load, at) => body.append(summaryRow(machine, run, load, at === 0)));
    }
  }
  const table = make("table", {}, make("thead", {}, head), body);
  document.getElementById("summary").append(make("div", { class: "scroll" }, table));
}

function summaryRow(machine, run, load, first) {
  const change = gain(run, load);
  const colour = change === null || Math.abs(change) < 0.05 ? "soft" : change > 0 ? "up" : "down";
  const cells = shown.map((metric) => {
    if (metric.whole && !first) return make("td", {});
    const value = metric.of(run, load);
    const isBest = value !== null && value === best(metric, machine, load.name);
    return make("td", { class: isBest ? "best" : null }, Number.isFinite(value) ? metric.show(value) : NONE);
  });
  cells.splice(0, 0, make("td", { class: colour }, change === null ? NONE : signed(change)));
  return make("tr", { class: first ? null : "more" },
    make("td", { title: run.policy_about }, first ? run.policy : ""), make("td", { class: "text" }, load.name), ...cells);
}

/** A horizontal bar for each run, by load; bars begin at 0, so those of a load compare. */
function bars(metric) {
  const names = metric.whole ? [null] : [...new Set(report.runs.flatMap((run) => run.loads.map((load) => load.name)))];
  const groups = names.map((name) => ({ name, rows: barRows(metric, name) })).filter((group) => group.rows.length);
  const longest = Math.max(0, ...groups.flatMap((group) => group.rows.map((row) => row.label.length)));
  const room = { left: Math.min(430, 24 + 7.4 * longest), width: 1120, right: 130, row: 30, head: groups.length > 1 ? 26 : 0 };
  const height = groups.reduce((sum, group) => sum + room.head + group.rows.length * room.row + 8, 0);
  const drawing = make("svg", { viewBox: `0 0 ${room.width} ${height}`, role: "img", "aria-label": metric.name });
  let y = 0;
  for (const group of groups) {
    if (room.head) drawing.append(make("text", { x: room.left, y: y + 17, class: "soft" }, group.name));
    y += room.head;
    const most = Math.max(...group.rows.map((row) => row.value), 1e-12);
    drawing.append(make("line", { x1: room.left, x2: room.left, y1: y, y2: y + group.rows.length * room.row, stroke: "var(--line)" }));
    for (const row of group.rows) {
      drawing.append(bar(metric, row, room, y, row.value / most));
      y += room.row;
    }
    y += 8;
  }
  document.getElementById("bars").replaceChildren(drawing);
}

/** Runs that have a value for the metric, of one load or (null) of the machine. */
function barRows(metric, loadName) {
  return report.runs.flatMap((run) => {
    const load = loadName === null ? run.loads[0] : loadOf(run, loadName);
    const value = load && metric.of(run, load);
    if (!Number.isFinite(value)) return [];
    const base = baseOf(run);
    const before = loadName === null ? base.loads[0] : loadOf(base, loadName);
    const reference = before && metric.of(base, before);
    const change = reference && base !== run ? 100 * (value / reference - 1) : null;
    return [{ value, change, base, label: (machines.length > 1 ? run.machine.name + ": " : "") + run.policy }];
  });
}

function bar(metric, row, room, y, frac) {
  const length = Math.max(1, frac * (room.width - room.left - room.right));
  const shape = make("rect", { x: room.left, y: y + 5, width: length, height: room.row - 10, rx: 2, fill: levelColour(0) });
  const value = make("text", { x: room.left + length + 8, y: y + 20 }, metric.show(row.value));
  const details = [[`${metric.name} (${metric.unit})`, metric.show(row.value)]];
  if (row.change !== null) {
    const plain = metric.sign === 0 || Math.abs(row.change) < 0.05;
    const colour = plain ? "soft" : row.change * metric.sign > 0 ? "good" : "bad";
    value.append(make("tspan", { dx: 8, style: `fill:var(--${colour})` }, signed(row.change)));
    details.push([`against ${row.base.policy}`, signed(row.change)]);
  }
  const label = make("text", { x: room.left - 12, y: y + 20, "text-anchor": "end" }, row.label);
  return withTip(make("g", { class: "bar" }, label, shape, value), row.label, details);
}

function metricButtons() {
  const group = document.getElementById("metrics");
  const choose = (metric, button) => {
    for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
    bars(metric);
  };
  for (const metric of shown) {
    const button = make("button", { type: "button" }, metric.name);
    button.addEventListener("click", () => choose(metric, button));
    group.append(button);
  }
  if (shown.length) choose(shown[0], group.children[0]);
}

/** For each run a bar per CPU, the levels stacked. */
function residency() {
  const place = document.getElementById("residency");
  for (const run of report.runs) {
    const [left, high, width] = [150, 64, 1120];
    const step = Math.min(80, (width - left) / Math.max(1, run.cpus.length));
    const drawing = make("svg", { viewBox: `0 0 ${width} ${high + 34}`, role: "img", "aria-label": `Residency under ${run.policy}` });
    drawing.append(make("text", { x: 0, y: 18 }, run.policy));
    if (machines.length > 1) drawing.append(make("text", { x: 0, y: 36, class: "soft" }, run.machine.name.replace(/^Intel /, "")));
    for (const [frac, label] of [[1, "100 %"], [0.5, "50 %"], [0, "0"]]) {
      const y = 8 + (1 - frac) * high;
      drawing.append(make("line", { x1: left, x2: left + step * run.cpus.length, y1: y, y2: y, stroke: "var(--grid)" }));
      drawing.append(make("text", { x: left - 8, y: y + 4, "text-anchor": "end", class: "soft", style: "font-size:11px" }, label));
    }
    run.cpus.forEach((cpu, at) => {
      const group = make("g", { class: "cpu" });
      const x = left + at * step;
      let y = 8 + high;
      cpu.residency_frac.forEach((frac, level) => {
        y -= frac * high;
        group.append(make("rect", { x: x + 1, y, width: Math.max(1, step - 2), height: frac * high, fill: levelColour(level) }));
      });
      const every = Math.ceil(20 / step);
      if (at % every === 0) group.append(make("text", { x: x + step / 2, y: high + 23, "text-anchor": "middle", class: "soft", style: "font-size:11.5px" }, String(cpu.cpu)));
      if (cpu.class > 0) group.append(make("line", { x1: x + 2, x2: x + step - 2, y1: high + 28, y2: high + 28, stroke: "var(--ink)", "stroke-width": 2 }));
      const rows = cpu.residency_frac.map((frac, level) => [`level ${level} (${run.machine.levels[level] || "?"})`, percent(frac)]);
      rows.push(["busy", percent(cpu.busy_frac)], ["mean clock", clock(cpu.mean_khz)]);
      drawing.append(withTip(group, `CPU ${cpu.cpu}, core ${cpu.core}${cpu.class > 0 ? ", wide" : ""}`, rows));
    });
    place.append(drawing);
  }
  const levels = machines.reduce((longest, machine) => (machine.levels.length > longest.length ? machine.levels : longest), []);
  const legend = document.getElementById("level-legend");
  levels.forEach((name, level) => legend.append(swatch(levelColour(level), `level ${level}: ${name}`)));
}

function swatch(colour, text, thin) {
  return make("span", {}, make("i", { style: `background:${colour}`, class: thin ? "thin" : null }), text);
}

function head() {
  document.getElementById("about").textContent = report.about + (report.partial ? ` Partial: ${report.partial}` : "");
  const input = document.getElementById("input");
  const entries = [
    ["Machine", machines.map((machine) => machine.name).join(", ")],
    ["CPUs", [...new Set(report.runs.map((run) => run.cpus.length))].join(", ")],
    ["Simulated", time(Math.max(0, ...report.runs.map((run) => run.simulated_ns)))],
    ["Seed", String(report.seed)],
  ];
  for (const [name, value] of entries) input.append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  const method = document.getElementById("method");
  method.append(make("p", {}, `Simulated by turbolane; report schema ${report.schema}. The same scenario and seed give the same figures.`));
  for (const machine of machines.filter((one) => one.assumed.length)) {
    const list = make("ul", {}, ...machine.assumed.map((what) => make("li", {}, what)));
    method.append(make("details", {}, make("summary", {}, `${machine.name}: ${machine.assumed.length} unpublished numbers are assumed`), list));
  }
}

head();
summary();
metricButtons();
residency();
