/* CSV (RFC 4180), as spreadsheets read and write it: with commas, semicolons or tabs. */

const SEPARATORS = [",", ";", "\t"];

/* Returns {columns, rows}: the names of the header line, and one object per line that is not empty, with its line number in `line`. */
export function parseCsv(text) {
  const clean = text.replace(/^\uFEFF/, "");
  const head = clean.split(/\r?\n/, 1)[0];
  const separator = SEPARATORS.reduce((best, each) => (head.split(each).length > head.split(best).length ? each : best));
  const [first = [], ...rest] = records(clean, separator);
  const columns = first.map((name) => name.trim());
  const rows = rest.map((cells, index) => ({ line: index + 2, cells: Object.fromEntries(columns.map((name, at) => [name, (cells[at] ?? "").trim()])) })).filter(({ cells }) => Object.values(cells).some(Boolean));
  return { columns, rows };
}

function records(text, separator) {
  const found = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    found.push([...row, cell]);
    row = [];
    cell = "";
  };
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[(at += 1)];
      else quoted = false;
    } else if (sign === '"' && cell.trim() === "") {
      cell = "";
      quoted = true;
    } else if (sign === separator) {
      row.push(cell);
      cell = "";
    } else if (sign === "\n") endRow();
    else if (sign !== "\r") cell += sign;
  }
  if (cell !== "" || row.length) endRow();
  return found;
}

/* A text that begins like a formula would run in a spreadsheet (OWASP: CSV injection). */
const quotedCell = (value) => `"${(/^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "")).replaceAll('"', '""')}"`;

export const csvBlob = (rows) => new Blob([rows.map((row) => row.map(quotedCell).join(",")).join("\r\n")], { type: "text/csv" });
