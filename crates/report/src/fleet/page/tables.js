// SPDX-License-Identifier: MIT OR Apache-2.0
// Three tables, and a button for each verdict.

const report = JSON.parse(document.getElementById("report").textContent);

const WORDS = { yes: "yes", unknown: "not known", no: "no" };
let shown = null;

const whole = (count) => count.toLocaleString("en-GB");
const mhz = (khz) => whole(Math.round(khz / 1000));
const stake = (row) => row.stake_khz === null ? NONE : `${mhz(row.stake_khz)} of ${mhz(row.clock_khz)}`;

/** A table of columns [title, is text, cell of a row]. */
function table(columns, rows) {
  const cell = (name, [, isText], content) => make(name, { class: isText ? "text" : null }, content);
  const head = make("tr", {}, ...columns.map((column) => cell("th", column, column[0])));
  const body = rows.map((row) => make("tr", {}, ...columns.map((column) => cell("td", column, column[2](row)))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function drawMachines() {
  const rows = report.machines.filter((machine) => shown === null || machine.worth === shown);
  document.getElementById("machines").replaceChildren(table([
    ["Machine", true, (row) => row.name],
    ["Worth it", true, (row) => WORDS[row.worth]],
    ["Gain", false, (row) => row.gain_pct === null ? NONE : signed(row.gain_pct)],
    ["MHz at stake", false, stake],
    ["CPU", true, (row) => row.cpu],
    ["Do next", true, (row) => row.next === "" ? row.why : row.next],
  ], rows));
  const choices = [["All", null], ...Object.entries(WORDS).map(([worth, word]) => [`Worth it: ${word}`, worth])];
  document.getElementById("verdicts").replaceChildren(...choices.map(([title, worth]) => {
    const choose = () => { shown = worth; drawMachines(); };
    return make("button", { type: "button", "aria-pressed": String(shown === worth), onclick: choose }, title);
  }));
}

const count = (worth) => report.machines.filter((machine) => machine.worth === worth).length;
document.getElementById("about").textContent = `${report.machines.length} machines: worth it on ${count("yes")}, not known on ` +
  `${count("unknown")}, not worth it on ${count("no")}`;
drawMachines();
document.getElementById("models").replaceChildren(table([
  ["CPU", true, (row) => row.cpu],
  ["Machines", false, (row) => whole(row.machines)],
  ["Worth it", false, (row) => whole(row.yes)],
  ["Not known", false, (row) => whole(row.unknown)],
  ["MHz at stake", false, stake],
], report.models));
document.getElementById("services").replaceChildren(report.services.length === 0
  ? make("p", { class: "note" }, "No service with wide code was found, or none was looked for.")
  : table([
    ["Service", true, (row) => row.name],
    ["Level", false, (row) => whole(row.sustained_level)],
    ["CPU time", false, (row) => time(row.cpu_time_ns)],
    ["Machines", false, (row) => whole(row.machines.length)],
    ["On", true, (row) => row.machines.join(", ")],
  ], report.services));
