// SPDX-License-Identifier: MIT OR Apache-2.0
// What was sampled, and the tables of functions and victims.

const busy = (samples) => percent(samples / Math.max(1, report.busy));

document.getElementById("about").textContent =
  `${counted(report.samples)} samples in ${time(report.time_ns)} on ${counted(report.cpus)} CPUs, one per ` +
  `${time(report.period_ns)} and CPU; ${counted(report.lost)} lost` +
  (report.partial ? `. Partial: ${report.partial}` : "");
const inputs = [
  ["Busy", counted(report.busy)], ["Kernel", busy(report.kernel)], ["Unknown code", busy(report.unknown)],
  ...report.levels.map((level) => [`Level ${level.license_level}`, busy(level.samples)]),
];
document.getElementById("input").append(...inputs.map(([name, value]) =>
  make("div", {}, make("dt", {}, name), make("dd", {}, value))));
put("functions", tableOf([
  ["Function", true, (row) => row.function],
  ["Process", true, (row) => row.process],
  ["Level", false, (row) => String(row.license_level)],
  ["Lasting", false, (row) => String(row.sustained_level)],
  ["Of busy time", false, (row) => busy(row.samples)],
  ["Samples", false, (row) => counted(row.samples)],
  ["File", true, (row) => row.file],
], report.offenders, `No sample in a function of level ${report.least_level} or above.`));
put("victims", tableOf([
  ["Victim", true, (row) => row.process],
  ["Of busy time", false, (row) => busy(row.samples)],
  ["Of its own", false, (row) => percent(row.samples / Math.max(1, row.of))],
], report.victims, `No other code was seen within ${time(report.window_ns)} after it on the same cores.`));
document.getElementById("method").append(
  make("p", {}, "Callers are found by frame pointers, which many libraries omit. Functions are named where they have wide code, otherwise their file is."),
  ...(report.unread.length === 0 ? [] : [make("details", {}, make("summary", {}, "Not looked at"),
    make("ul", {}, ...report.unread.map((what) => make("li", {}, what))))]));
