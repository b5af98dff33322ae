// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// Clock, licence level and tasks of each core over time.
//
// A hundred thousand spans on a thousand pixels: each pixel column adds up the time that it covers,
// so nothing is dropped and a column's colours are in proportion. What is drawn of a column:
//
//   offender lanes, one per CPU    ink, as dense as the CPU was busy with code that asks for > 0
//   clock                          height: mean clock; colours: its levels, in proportion
//   victim lanes, one per CPU      grey where the core was at level 0, red where it was above

const LANE = 9;
const LANE_GAP = 3;
const CLOCK = 54;
const PAD = 10;
const GUTTER = 104;
const RIGHT = 74;
const AXIS = 26;
/** Cores shown before the reader asks for all. */
const FIRST_CORES = 4;

const withTimeline = report.runs.filter((run) => run.timeline && run.timeline.cpus.length);
const view = { start: 0, end: 0, all: false, few: new Set(), panels: [] };

/** The index of the last value that is not above `at`; -1 if there is none. */
function lastBefore(values, at) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Calls `each(pixel, ns)` for the pixels that start..end covers, with the time in each. */
function spread(start, end, window, width, each) {
  const scale = width / (window.end - window.start);
  const from = Math.max(0, (start - window.start) * scale);
  const to = Math.min(width, (end - window.start) * scale);
  for (let pixel = Math.floor(from); pixel < to; pixel++) {
    const covered = Math.min(to, pixel + 1) - Math.max(from, pixel);
    if (covered > 0) each(pixel, covered);
  }
}

/** What each pixel of a core's clock band shows: time by level, mean clock, throttling. */
function coreColumns(core, window, width, nrLevels) {
  const columns = {
    levels: Array.from({ length: nrLevels }, () => new Float32Array(width)),
    khz: new Float32Array(width),
    throttled: new Float32Array(width),
  };
  for (let at = Math.max(0, lastBefore(core.at_ns, window.start)); at < core.at_ns.length && core.at_ns[at] < window.end; at++) {
    const end = at + 1 < core.at_ns.length ? core.at_ns[at + 1] : window.last;
    spread(core.at_ns[at], end, window, width, (pixel, share) => {
      columns.levels[Math.min(core.level[at], nrLevels - 1)][pixel] += share;
      columns.khz[pixel] += share * core.clock_khz[at];
      if (core.throttled[at]) columns.throttled[pixel] += share;
    });
  }
  return columns;
}

/** Share of each pixel in which a CPU ran offenders, victims at level 0, and slowed victims. */
function laneColumns(cpu, core, window, width) {
  const columns = { offender: new Float32Array(width), victim: new Float32Array(width), slowed: new Float32Array(width) };
  const first = Math.max(0, lastBefore(cpu.start_ns, window.start));
  for (let at = first; at < cpu.start_ns.length && cpu.start_ns[at] < window.end; at++) {
    if (cpu.end_ns[at] <= window.start) continue;
    if (cpu.asks[at] > 0) {
      spread(cpu.start_ns[at], cpu.end_ns[at], window, width, (pixel, share) => (columns.offender[pixel] += share));
      continue;
    }
    // A victim's span is cut where its core's level changes.
    let step = Math.max(0, lastBefore(core.at_ns, cpu.start_ns[at]));
    for (let start = cpu.start_ns[at]; start < cpu.end_ns[at]; step++) {
      const next = step + 1 < core.at_ns.length ? core.at_ns[step + 1] : Infinity;
      const end = Math.min(cpu.end_ns[at], next);
      const kind = core.level[step] > 0 ? columns.slowed : columns.victim;
      if (end > start) spread(start, end, window, width, (pixel, share) => (kind[pixel] += share));
      start = Math.max(start, end);
    }
  }
  return columns;
}

/** One run's cores on a canvas, and the pointer's line on another one above it: a hundred thousand
    spans are not drawn again because the pointer moves. */
class Panel {
  constructor(run) {
    this.title = make("h3", {});
    this.lead = make("p", {});
    this.canvas = make("canvas", {});
    this.overlay = make("canvas", { class: "overlay" });
    this.stage = make("div", { class: "stage", tabindex: 0, role: "img" }, this.canvas, this.overlay);
    this.element = make("div", { class: "panel" }, this.title, this.lead, this.stage);
    this.pointer = null;
    this.drag = null;
    this.listen();
    this.show(run);
  }

  show(run) {
    this.run = run;
    this.title.textContent = machines.length > 1 ? `${run.machine.name}: ${run.policy}` : run.policy;
    const missing = run.timeline.dropped ? ` ${number(run.timeline.dropped)} later changes were not recorded.` : "";
    this.lead.textContent = run.policy_about + missing;
    this.stage.setAttribute("aria-label", `Clock and licence level of each core under ${run.policy}`);
    const { cores, cpus } = run.timeline;
    this.most = Math.max(1, ...cores.map((core) => core.clock_khz.reduce((most, khz) => Math.max(most, khz), 0)));
    this.rows = cores.map((core, index) => ({ core, cpus: cpus.filter((cpu) => cpu.core === index) }));
  }

  /** The cores to draw: all, or the same few in every panel, so that panels compare. */
  visible() {
    return view.all ? this.rows : this.rows.filter((row) => view.few.has(row.core.core));
  }

  rowHeight(row) {
    return PAD * 2 + CLOCK + 2 * row.cpus.length * (LANE + LANE_GAP) + 4;
  }

  draw() {
    const rows = this.visible();
    const width = this.canvas.clientWidth || 1080;
    const height = rows.reduce((sum, row) => sum + this.rowHeight(row), 0) + AXIS;
    this.plot = { width: Math.max(50, width - GUTTER - RIGHT), height: height - AXIS };
    this.bounds = [];
    const pen = penFor(this.canvas, width, height);
    penFor(this.overlay, width, height);
    this.colours = colours();
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    this.drawAxis(pen);
    let y = 0;
    for (const row of rows) {
      this.bounds.push({ row, top: y, bottom: y + this.rowHeight(row) });
      this.drawRow(pen, row, y);
      y += this.rowHeight(row);
    }
    this.drawPointer();
  }

  x(ns) {
    return GUTTER + ((ns - view.start) / (view.end - view.start)) * this.plot.width;
  }

  drawAxis(pen) {
    const span = view.end - view.start;
    const step = tickStep(span, this.plot.width / 110);
    const bottom = this.plot.height;
    pen.strokeStyle = this.colours.grid;
    pen.fillStyle = this.colours.soft;
    pen.textAlign = "center";
    for (let tick = Math.ceil((view.start - view.first) / step) * step; tick <= view.end - view.first + 1; tick += step) {
      const x = Math.round(this.x(view.first + tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, 0);
      pen.lineTo(x, bottom + 4);
      pen.stroke();
      pen.fillText(time(tick), x, bottom + 15);
    }
  }

  drawRow(pen, row, top) {
    const { colours, plot } = this;
    const window = { start: view.start, end: view.end, last: this.run.timeline.end_ns };
    const pixels = Math.ceil(plot.width);
    const nrLevels = this.run.machine.levels.length;
    const core = coreColumns(row.core, window, pixels, nrLevels);
    const lanes = row.cpus.map((cpu) => ({ cpu, ...laneColumns(cpu, row.core, window, pixels) }));
    const clockTop = top + PAD + lanes.length * (LANE + LANE_GAP) + 2;
    this.drawGuides(pen, clockTop);
    this.drawClock(pen, core, clockTop + CLOCK, pixels);
    lanes.forEach((lane, at) => {
      const above = top + PAD + at * (LANE + LANE_GAP);
      const below = clockTop + CLOCK + 4 + at * (LANE + LANE_GAP);
      drawLane(pen, above, [[lane.offender, colours.offender]], pixels, colours.grid);
      drawLane(pen, below, [[lane.slowed, colours.slowed], [lane.victim, colours.victim]], pixels, colours.grid);
    });
    this.drawLabels(pen, row, core, clockTop, top);
  }

  /** Columns as tall as the mean clock, filled from the bottom by the levels' shares. */
  drawClock(pen, core, bottom, pixels) {
    const total = new Float32Array(pixels);
    for (const level of core.levels) for (let pixel = 0; pixel < pixels; pixel++) total[pixel] += level[pixel];
    const foot = new Float32Array(pixels).fill(bottom);
    core.levels.forEach((shares, level) => {
      pen.fillStyle = this.colours.levels[Math.min(level, 5)];
      for (let pixel = 0; pixel < pixels; pixel++) {
        if (shares[pixel] <= 0) continue;
        const mean = core.khz[pixel] / total[pixel];
        const part = (shares[pixel] / total[pixel]) * (mean / this.most) * CLOCK;
        foot[pixel] -= part;
        pen.fillRect(GUTTER + pixel, foot[pixel], 1, part);
      }
    });
    pen.fillStyle = this.colours.throttle;
    for (let pixel = 0; pixel < pixels; pixel++) {
      if (core.throttled[pixel] <= 0.02) continue;
      pen.globalAlpha = 0.35 + 0.65 * Math.min(1, core.throttled[pixel] / total[pixel]);
      pen.fillRect(GUTTER + pixel, foot[pixel], 1, 3);
    }
    pen.globalAlpha = 1;
  }

  /** Grid lines of the clock band at integer GHz, with their figures. */
  drawGuides(pen, clockTop) {
    const step = tickStep(this.most, 4);
    pen.textAlign = "right";
    for (let khz = 0; khz <= this.most; khz += step) {
      const y = Math.round(clockTop + CLOCK - (khz / this.most) * CLOCK) + 0.5;
      pen.strokeStyle = this.colours.grid;
      pen.beginPath();
      pen.moveTo(GUTTER, y);
      pen.lineTo(GUTTER + this.plot.width, y);
      pen.stroke();
      pen.fillStyle = this.colours.soft;
      pen.font = pen.font.replace(/^\d+px/, "10.5px");
      if (khz > 0) pen.fillText(khz / 1e6 + (khz + step > this.most ? " GHz" : ""), GUTTER - 6, y);
      pen.font = pen.font.replace(/^[\d.]+px/, "12px");
    }
  }

  drawLabels(pen, row, core, clockTop, top) {
    const wide = row.cpus.some((cpu) => (this.run.cpus.find((use) => use.cpu === cpu.cpu) || {}).class > 0);
    pen.textAlign = "left";
    pen.fillStyle = this.colours.ink;
    pen.fillText(`core ${row.core.core}`, 0, clockTop + CLOCK / 2 - 7);
    pen.fillStyle = this.colours.soft;
    pen.fillText(wide ? "wide" : "", 0, clockTop + CLOCK / 2 + 9);
    pen.font = pen.font.replace(/^\d+px/, "10px");
    row.cpus.forEach((cpu, at) => {
      const shift = at * (LANE + LANE_GAP) + LANE / 2;
      pen.textAlign = "right";
      pen.fillText(`CPU ${cpu.cpu}`, GUTTER - 6, top + PAD + shift);
      pen.fillText(`CPU ${cpu.cpu}`, GUTTER - 6, clockTop + CLOCK + 4 + shift);
    });
    pen.font = pen.font.replace(/^\d+px/, "12px");
    const times = core.levels.reduce((sum, level) => sum + level.reduce((a, b) => a + b, 0), 0);
    const mean = core.khz.reduce((a, b) => a + b, 0) / Math.max(times, 1e-9);
    pen.textAlign = "left";
    pen.fillStyle = this.colours.ink;
    pen.fillText(clock(mean), GUTTER + this.plot.width + 10, clockTop + CLOCK / 2 - 7);
    pen.fillStyle = this.colours.soft;
    pen.fillText("mean", GUTTER + this.plot.width + 10, clockTop + CLOCK / 2 + 9);
  }

  drawPointer() {
    const pen = this.overlay.getContext("2d");
    pen.clearRect(0, 0, this.overlay.clientWidth, this.overlay.clientHeight);
    if (this.drag) {
      const [from, to] = [this.drag.from, this.drag.to].sort((a, b) => a - b);
      pen.fillStyle = this.colours.accent;
      pen.globalAlpha = 0.18;
      pen.fillRect(from, 0, to - from, this.plot.height);
      pen.globalAlpha = 1;
    } else if (this.pointer !== null) {
      const x = Math.round(this.pointer) + 0.5;
      pen.strokeStyle = this.colours.soft;
      pen.beginPath();
      pen.moveTo(x, 0);
      pen.lineTo(x, this.plot.height);
      pen.stroke();
    }
  }

  /** Time under a pointer, kept inside the plot. */
  timeAt(x) {
    const share = Math.min(1, Math.max(0, (x - GUTTER) / this.plot.width));
    return view.start + share * (view.end - view.start);
  }

  tipAt(event, x, y) {
    const found = this.bounds.find((bound) => y >= bound.top && y < bound.bottom);
    if (!found || x < GUTTER || x > GUTTER + this.plot.width) return hideTip();
    const { core, cpus } = found.row;
    const at = this.timeAt(x);
    const step = Math.max(0, lastBefore(core.at_ns, at));
    const name = this.run.machine.levels[core.level[step]] || "?";
    const rows = [
      ["licence level", `${core.level[step]} (${name})`],
      ["clock", core.clock_khz[step] ? clock(core.clock_khz[step]) : "halted"],
    ];
    if (core.throttled[step]) rows.push(["wide code", "throttled, waits for its licence"]);
    for (const cpu of cpus) {
      const span = lastBefore(cpu.start_ns, at);
      const busy = span >= 0 && cpu.end_ns[span] > at;
      const asks = busy && cpu.asks[span] > 0 ? `, asks for ${cpu.asks[span]}` : "";
      rows.push([`CPU ${cpu.cpu}`, busy ? this.run.timeline.tasks[cpu.task[span]].name + asks : "idle"]);
    }
    showTip(event, `core ${core.core} at ${time(at - view.first)}`, rows);
  }

  listen() {
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.stage.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (this.drag) this.drag.to = Math.min(GUTTER + this.plot.width, Math.max(GUTTER, x));
      const inside = x >= GUTTER && x <= GUTTER + this.plot.width;
      for (const panel of view.panels) {
        panel.pointer = inside ? x : null;
        panel.drawPointer();
      }
      this.tipAt(event, x, y);
    });
    this.stage.addEventListener("pointerleave", () => {
      this.drag = null;
      for (const panel of view.panels) {
        panel.pointer = null;
        panel.drawPointer();
      }
      hideTip();
    });
    this.stage.addEventListener("pointerdown", (event) => {
      const [x] = place(event);
      if (event.button === 0 && x >= GUTTER) this.drag = { from: x, to: x };
    });
    this.stage.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (drag && Math.abs(drag.to - drag.from) > 4) {
        const times = [this.timeAt(drag.from), this.timeAt(drag.to)].sort((a, b) => a - b);
        zoomTo(times[0], times[1]);
      }
    });
    this.stage.addEventListener("dblclick", () => zoomTo(view.first, view.last));
    this.stage.addEventListener("keydown", (event) => {
      const span = view.end - view.start;
      const moves = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.25, -0.25], "-": [-0.5, 0.5] };
      const move = moves[event.key];
      if (event.key === "Home") zoomTo(view.first, view.last);
      else if (move) zoomTo(view.start + move[0] * span, view.end + move[1] * span);
      else return;
      event.preventDefault();
    });
  }
}

/** A cleared canvas of that size in the page's pixels, sharp on any screen. */
function penFor(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** A lane: each column is as opaque as its kinds had a share in it. */
function drawLane(pen, y, kinds, pixels, background) {
  pen.fillStyle = background;
  pen.fillRect(GUTTER, y + LANE - 1, pixels, 1);
  for (const [shares, colour] of kinds) {
    pen.fillStyle = colour;
    for (let pixel = 0; pixel < pixels; pixel++) {
      if (shares[pixel] < 0.02) continue;
      pen.globalAlpha = shares[pixel] > 0.99 ? 1 : shares[pixel];
      pen.fillRect(GUTTER + pixel, y, 1, LANE);
    }
  }
  pen.globalAlpha = 1;
}

/** The style sheet's colours, for the canvas. */
function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue("--" + name).trim();
  const names = ["ink", "soft", "grid", "accent", "offender", "victim", "slowed", "throttle"];
  return { levels: [0, 1, 2, 3, 4, 5].map((level) => of("l" + level)), ...Object.fromEntries(names.map((name) => [name, of(name)])) };
}

/** The cores shown at first: half of them wide in some run, if there are any, the rest scalar. */
function fewCores() {
  const cores = [...new Set(withTimeline.flatMap((run) => run.timeline.cores.map((core) => core.core)))];
  const isWide = (core) => withTimeline.some((run) => run.cpus.some((cpu) => cpu.core === core && cpu.class > 0));
  const [wide, scalar] = [cores.filter(isWide), cores.filter((core) => !isWide(core))];
  const few = wide.slice(0, Math.max(FIRST_CORES / 2, FIRST_CORES - scalar.length));
  return new Set([...few, ...scalar.slice(0, FIRST_CORES - few.length)]);
}

/** Shows start..end, kept inside the timeline and not shorter than a microsecond. */
function zoomTo(start, end) {
  const span = Math.min(view.last - view.first, Math.max(1000, end - start));
  view.start = Math.min(Math.max(view.first, start), view.last - span);
  view.end = view.start + span;
  document.getElementById("window").textContent =
    `${time(view.start - view.first)} to ${time(view.end - view.first)}`;
  drawSoon();
}

let waiting = false;
function drawSoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const panel of view.panels) panel.draw();
  });
}

function chooser(panel, label) {
  const select = make("select", { "aria-label": label });
  withTimeline.forEach((run, at) => {
    const text = machines.length > 1 ? `${run.machine.name}: ${run.policy}` : run.policy;
    select.append(make("option", { value: at }, text));
  });
  select.value = String(withTimeline.indexOf(panel.run));
  select.addEventListener("change", () => {
    panel.show(withTimeline[Number(select.value)]);
    drawSoon();
  });
  return make("label", {}, label, select);
}

function timelineTools() {
  const tools = document.getElementById("timeline-tools");
  const labels = view.panels.length > 1 ? ["Above", "Below"] : ["Policy"];
  view.panels.forEach((panel, at) => tools.append(chooser(panel, labels[at])));
  tools.append(make("span", { class: "tools-gap" }), make("label", { id: "window" }));
  const zoom = (factor) => {
    const middle = (view.start + view.end) / 2;
    const half = ((view.end - view.start) / 2) * factor;
    zoomTo(middle - half, middle + half);
  };
  const button = (text, id, action) => tools.append(make("button", { type: "button", id, onclick: action }, text));
  button("Zoom in", "zoom-in", () => zoom(0.5));
  button("Zoom out", "zoom-out", () => zoom(2));
  button("All", "zoom-all", () => zoomTo(view.first, view.last));
  const cores = Math.max(...withTimeline.map((run) => run.timeline.cores.length));
  if (cores > FIRST_CORES) {
    const toggle = make("button", { type: "button", id: "all-cores", "aria-pressed": "false" }, `All ${cores} cores`);
    toggle.addEventListener("click", () => {
      view.all = !view.all;
      toggle.setAttribute("aria-pressed", String(view.all));
      drawSoon();
    });
    tools.append(toggle);
  }
}

function timeline() {
  if (!withTimeline.length) {
    document.getElementById("timeline-section").hidden = true;
    return;
  }
  view.first = Math.min(...withTimeline.map((run) => run.timeline.start_ns));
  view.last = Math.max(...withTimeline.map((run) => run.timeline.end_ns));
  view.few = fewCores();
  view.panels = withTimeline.slice(0, 2).map((run) => new Panel(run));
  document.getElementById("timeline").append(...view.panels.map((panel) => panel.element));
  const legend = document.getElementById("span-legend");
  legend.append(
    swatch("var(--offender)", "offender", false),
    swatch("var(--victim)", "victim at full turbo"),
    swatch("var(--slowed)", "victim at a raised level"),
    swatch("var(--throttle)", "throttled: waits for its licence", true));
  const levels = [...document.getElementById("level-legend").children].map((item) => item.cloneNode(true));
  legend.append(...levels);
  timelineTools();
  zoomTo(view.first, view.last);
  addEventListener("resize", drawSoon);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawSoon);
  matchMedia("print").addEventListener("change", drawSoon);
}

timeline();
