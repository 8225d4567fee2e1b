// Goal    no two labels of a plot of tarn-bench --long overlap, whichever contexts, prompts and
//         figures were measured, and none leaves the plot.
// Method  the script of the page in this process, with nodes that only keep what they were given;
//         the boxes of the plots' texts, at the widths of a wide font.
"use strict";
const fs = require("fs");
const vm = require("vm");

class Node {
  constructor(name) { this.name = name; this.attributes = {}; this.children = []; }
  setAttribute(key, value) { this.attributes[key] = value; }
  append(...children) { this.children.push(...children); }
  all(name) {
    const nested = this.children.filter(c => c instanceof Node).flatMap(c => c.all(name));
    return this.name === name ? [this, ...nested] : nested;
  }
  get textContent() { return this.children.map(c => c.textContent ?? String(c)).join(""); }
}

function plotsOf(page, measured) {
  const script = page.slice(page.indexOf('"use strict"'), page.lastIndexOf("</script>"));
  const byId = {};
  const document = {
    createElement: name => new Node(name),
    createElementNS: (_, name) => new Node(name),
    getElementById: id => byId[id] ||= new Node(id),
  };
  document.getElementById("measured").append(JSON.stringify(measured));
  vm.runInNewContext(script, { document });
  return byId.plots.all("svg").filter(svg => svg.attributes.role === "img");
}

// [left, top, right, bottom]: 13 pixels high, 4 of them below the line, 8.3 a character.
function boxOf(text) {
  const { x, y, transform } = text.attributes;
  const width = 8.3 * text.textContent.length;
  if (transform) return [x - 9, y - width / 2, x + 4, y + width / 2];  // rotated by -90 degrees
  const left = { start: x, middle: x - width / 2, end: x - width }[text.attributes["text-anchor"]];
  return [left, y - 9, left + width, y + 4];
}
const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

function measuredOf(contexts, speed, totalBytes) {
  const row = n_depth => ({ n_depth, n_prompt: n_depth, avg_ts: speed, kv_bytes_per_token: 1 << 20,
    disk_bytes_per_token: speed, useful_share: 0.5, hit_rate: 0.5, recall: 0.5, kv: "computed",
    verified: true, select: "full", selected: false, model_type: "m", model_size: 1, cpu_info: "c",
    isa: "i", n_threads: 1, test_time: "t", select_ms: 0, gather_ms: 0, attend_ms: 0,
    first_token_s: speed, second_token_s: speed });
  const one = (name, has_store) => ({ name, command: "c", prompts_command: "p", why_not: "",
    has_store, index_delay_tokens: 0, rows: contexts.map(row), prompts: contexts.map(row),
    plans: contexts.map(n_tokens => ({ n_tokens, total_bytes: totalBytes,
      budget_bytes: 2 * totalBytes })) });
  return { command: "c", series: [one("full, f16", false),
    one("full, f16, store", true)] };
}

const page = fs.readFileSync(process.argv[2], "utf8");
const cases = [
  ["the defaults", [1024, 8192, 32768]],
  ["neighbours", [1000, 1010, 1024, 1100, 1200, 100000, 100001, 131072]],
  ["many", Array.from({ length: 40 }, (_, i) => 1000 + 777 * i)],
  ["long numbers", [1000001, 1200001, 9999999]],
  ["one", [123457]],
  ["the last two", [1024, 32767, 32768]],
];
let nPlots = 0;
const wrong = [];
for (const [name, contexts] of cases) {
  for (const speed of [0.00012, 0.7, 12, 1234, 98765.4, 1234567]) {
    for (const totalBytes of [3 << 20, 77 * 2 ** 30, 123456 * 2 ** 30]) {
      for (const svg of plotsOf(page, measuredOf(contexts, speed, totalBytes))) {
        ++nPlots;
        const texts = svg.all("text");
        const boxes = texts.map(boxOf);
        const where = `${name}, ${speed}, ${totalBytes}: `;
        boxes.forEach((a, i) => {
          if (a[0] < 0 || a[1] < 0 || a[2] > 860 || a[3] > 330)
            wrong.push(where + texts[i].textContent + " leaves the plot");
          for (let j = 0; j < i; ++j) {
            if (overlap(a, boxes[j]))
              wrong.push(where + texts[i].textContent + " on " + texts[j].textContent);
          }
        });
        const words = texts.map(t => t.textContent);
        const last = contexts[contexts.length - 1];
        if (!words.some(w => w === String(last) || w === last / 1024 + "K"))
          wrong.push(where + "the last context has no label");
      }
    }
  }
}
if (nPlots < 100) wrong.push(`only ${nPlots} plots`);
console.log([...wrong.slice(0, 20), `${nPlots} plots, ${wrong.length} faults`].join("\n"));
process.exit(wrong.length === 0 ? 0 : 1);
