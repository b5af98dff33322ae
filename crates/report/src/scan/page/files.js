// SPDX-License-Identifier: MIT OR Apache-2.0
// The table of files, and under it each file's functions, which are drawn when they are unfolded.

const report = JSON.parse(document.getElementById("report").textContent);

const HEADS = ["Level", "Lasting", "Widest", "Heavy 512", "Heavy 256", "Density", "Size", "Function"];
const STYLES = { Widest: "text", Function: "long" };
const columns = HEADS.map((head, at) => [head, STYLES[head], (cells) => cells[at]]);
/** The file itself was searched for, not a function in it. */
const isFile = (file, sought) => `${file.path}\n${(file.users || []).join("\n")}`.toLowerCase().includes(sought);
const isFunction = (cells, sought) => cells[cells.length - 1].toLowerCase().includes(sought);

let sought = "";

const functionsOf = (file) => isFile(file, sought) ? file.functions : file.functions.filter((cells) => isFunction(cells, sought));
const filesShown = () => report.files.filter((file) => isFile(file, sought) || functionsOf(file).length > 0);

function marked(file) {
  if (file.marks === null) return NONE;
  const [reached, all] = file.marks;
  return `${counted(reached)} of ${counted(all)}`;
}

/** The path, which unfolds the file's functions. */
function link(file) {
  const id = `file-${report.files.indexOf(file)}`;
  const unfold = () => { document.getElementById(id).open = true; };
  return make("a", { href: `#${id}`, onclick: unfold }, file.path);
}

function drawFiles(files) {
  const both = report.level > report.least_level;
  put("files", tableOf([
    ["File", "long", link],
    ["Reaches", false, (file) => String(file.license_level)],
    ["Lasting", false, (file) => String(file.sustained_level)],
    [`Level ${report.level}+`, false, (file) => counted(file.of_level)],
    ...(both ? [[`Level ${report.least_level}+`, false, (file) => counted(file.found)]] : []),
    ["Can be marked", false, marked],
    ["Heavy 512", false, (file) => counted(file.heavy_zmm)],
    ["Heavy 256", false, (file) => counted(file.heavy_ymm)],
    ["Mapped by", "long", (file) => file.users === null ? NONE : file.users.join(", ")],
  ], files, "No function of that level was found."));
}

function drawFunctions(file) {
  const rows = functionsOf(file);
  return [
    make("ul", {}, ...file.facts.map((fact) => make("li", {}, fact))),
    make("div", { class: "scroll" }, tableOf(columns, rows, "No function of that level.")),
    file.left_out > 0 ? make("p", { class: "soft" }, `${counted(file.left_out)} more; --top 0 puts all into the page`) : null,
  ].filter((part) => part !== null);
}

function details(file) {
  const summary = make("summary", {}, `${file.path}: ${counted(file.found)} of level ${report.least_level} and above`);
  const all = make("details", { class: "file", id: `file-${report.files.indexOf(file)}` }, summary);
  all.addEventListener("toggle", () => { if (all.open) all.replaceChildren(summary, ...drawFunctions(file)); });
  // One file alone, or a function that was searched for.
  if (report.files.length === 1 || (sought !== "" && !isFile(file, sought))) {
    all.replaceChildren(summary, ...drawFunctions(file));
    all.open = true;
  }
  return all;
}

function draw() {
  const files = filesShown();
  drawFiles(files);
  put("functions", ...files.map(details));
  document.getElementById("matches").textContent = sought === "" ? ""
    : `${counted(files.length)} ${files.length === 1 ? "file" : "files"}`;
}

document.getElementById("about").textContent = [report.counted, report.refused].filter(Boolean).join(". ");
document.getElementById("order").textContent = `Those with most functions of level ${report.level} and above first. `
  + "Can be marked: functions that a mark of turbolane run reaches without single-stepping.";
document.getElementById("search").addEventListener("input", (event) => { sought = event.target.value.toLowerCase(); draw(); });
draw();
