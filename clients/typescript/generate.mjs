// Writes src/generated: the types of the OpenAPI document, and the operations that take an idempotency key.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const document = JSON.parse(await readFile(process.argv[2], "utf8"));
const folder = new URL("src/generated/", import.meta.url);

const idempotent = Object.entries(document.paths).filter(([, methods]) =>
  methods.post?.parameters?.some((parameter) => parameter.name === "Idempotency-Key"),
);
await mkdir(folder, { recursive: true });
// A field with a default may be left out of a request; responses list theirs as required.
await writeFile(new URL("schema.ts", folder), astToString(await openapiTS(document, { defaultNonNullable: false })));
await writeFile(
  new URL("idempotent.ts", folder),
  `/** Paths whose POST takes an \`Idempotency-Key\`. */\nexport const IDEMPOTENT: ReadonlySet<string> = new Set(${JSON.stringify(idempotent.map(([path]) => path))});\n`,
);
