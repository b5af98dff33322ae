// SPDX-License-Identifier: MIT OR Apache-2.0
// Three tables, and a button for each verdict.

const report = JSON.parse(document.getElementById("report").textContent);

const WORDS = { yes: "yes", unknown: "not known", no: "no" };
let shown = null;

const mhz = (khz) => counted(Math.round(khz / 1000));
const stake = (row) => row.stake_khz === null ? NONE : `${mhz(row.stake_khz)} of ${mhz(row.clock_khz)}`;

function drawMachines() {
  const rows = report.machines.filter((machine) => shown === null || machine.worth === shown);
  put("machines", tableOf([
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
put("models", tableOf([
  ["CPU", true, (row) => row.cpu],
  ["Machines", false, (row) => counted(row.machines)],
  ["Worth it", false, (row) => counted(row.yes)],
  ["Not known", false, (row) => counted(row.unknown)],
  ["MHz at stake", false, stake],
], report.models));
put("services", tableOf([
  ["Service", true, (row) => row.name],
  ["Level", false, (row) => counted(row.sustained_level)],
  ["CPU time", false, (row) => time(row.cpu_time_ns)],
  ["Machines", false, (row) => counted(row.machines.length)],
  ["On", true, (row) => row.machines.join(", ")],
], report.services, "No service with wide code was found, or none was looked for."));
