// SPDX-License-Identifier: MIT OR Apache-2.0
"use strict";
// Numbers for people, elements, and the tooltip.

const NONE = "\u2013";

/** Significant digits, without an exponent and without trailing noise. */
function digits(value, count) {
  if (value === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toFixed(Math.max(0, Math.min(6, count - whole)));
}

function time(ns) {
  if (ns === null || ns === undefined) return NONE;
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["\u00b5s", 1e3]]) {
    if (Math.abs(ns) >= size) return digits(ns / size, 3) + "\u00a0" + unit;
  }
  return digits(ns, 3) + "\u00a0ns";
}

function clock(khz) {
  return khz === null || khz === undefined ? NONE : (khz / 1e6).toFixed(2) + "\u00a0GHz";
}

function percent(frac, decimals = 1) {
  return frac === null || frac === undefined ? NONE : (100 * frac).toFixed(decimals) + "\u00a0%";
}

function number(value) {
  if (value === null || value === undefined) return NONE;
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-GB");
  return digits(value, 3);
}

function signed(pct) {
  return (pct > 0 ? "+" : pct < 0 ? "\u2212" : "") + Math.abs(pct).toFixed(1) + "\u00a0%";
}

/** An element with attributes and children; a string child is text, never markup. */
function make(name, attributes, ...children) {
  const space = ["svg", "g", "rect", "text", "tspan", "line", "path"].includes(name);
  const element = space
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A count with all its digits. */
const counted = (count) => count.toLocaleString("en-GB");

/** A label of an axis: no zeros at the end of its decimals. */
const short = (label) => label.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");

/** A table of columns [title, is text (or the class of its cells), cell of a row], or a note where there are no rows. */
function tableOf(columns, rows, none = "None.") {
  if (rows.length === 0) return make("p", { class: "note" }, none);
  const cell = (name, [, isText], content) => make(name, { class: isText === true ? "text" : isText || null }, content);
  const head = make("tr", {}, ...columns.map((column) => cell("th", column, column[0])));
  const body = rows.map((row) => make("tr", {}, ...columns.map((column) => cell("td", column, column[2](row)))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

/** Puts it into the element of that id, in place of what is there. */
function put(place, ...content) {
  document.getElementById(place).replaceChildren(...content.filter((part) => part !== null));
}

/** Step between ticks so that about `count` of them cover `span`: 1, 2 or 5 times a power of 10. */
function tickStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough);
}

const tip = document.getElementById("tip");

/** Shows a title and rows of [name, value] beside the pointer. */
function showTip(event, title, rows) {
  const body = make("table", {});
  for (const [name, value] of rows) body.append(make("tr", {}, make("td", {}, name), make("td", {}, value)));
  tip.replaceChildren(make("b", {}, title), body);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 14 : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - box.height - 8);
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.max(4, top) + "px";
}

function hideTip() {
  tip.hidden = true;
}

/** Tooltip of an element whose text does not depend on where the pointer is in it. */
function withTip(element, title, rows) {
  element.addEventListener("pointermove", (event) => showTip(event, title, rows));
  element.addEventListener("pointerleave", hideTip);
  return element;
}

function levelColour(level) {
  return `var(--l${Math.min(level, 5)})`;
}
