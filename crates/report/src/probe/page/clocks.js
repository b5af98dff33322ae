// SPDX-License-Identifier: MIT OR Apache-2.0
// A heat map: the settled clock of each dense kernel by the number of active CPUs, and how far it is
// below the clock before the kernel.

const dense = report.rows.filter((row) => row.one_in === 1);

/** The change of the clock, a fraction; `null` where it is not known. */
function drop(row) {
  return row?.before_khz && row.steady_khz ? row.steady_khz.value / row.before_khz.value - 1 : null;
}

const deepest = Math.max(0.01, ...dense.map((row) => -(drop(row) ?? 0)));

function clockCell(row) {
  const change = drop(row);
  if (change === null) return make("td", { class: "soft" }, NONE);
  // The number is there too: the colour only shows where to look.
  const share = Math.round(60 * Math.max(0, -change) / deepest);
  const style = `background: color-mix(in srgb, var(--l2) ${share}%, transparent)`;
  const cell = make("td", { style }, `${clock(row.steady_khz.value)} (${percent(Math.round(100 * change) / 100 + 0, 0)})`);
  return withTip(cell, `${row.kernel}, ${row.active} active`, [
    ["before", estimate(row.before_khz, clock)], ["settled", estimate(row.steady_khz, clock)], ["class", row.class]]);
}

function drawClocks() {
  const kernels = [...new Set(dense.map((row) => row.kernel))];
  const active = [...new Set(dense.map((row) => row.active))].sort((a, b) => a - b);
  const head = make("tr", {}, make("th", {}, "Kernel"), ...active.map((count) => make("th", {}, `${count} active`)));
  const lines = kernels.map((kernel) => make("tr", {}, make("td", {}, kernel),
    ...active.map((count) => clockCell(dense.find((row) => row.kernel === kernel && row.active === count)))));
  document.getElementById("verdict").textContent = `Verdict: ${report.verdict}. `
    + "Dense code; in parentheses: against the clock before it.";
  document.getElementById("clocks").replaceChildren(
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)));
}

drawClocks();
