// Asks a platform by the clients of OpenAI and Cohere, as a service does:
// node asking.cjs URL KEY MODEL
// Writes a line of JSON: what each client has got, or the error that it has raised.
"use strict";

const [url, key, model] = process.argv.slice(2);
const text = "disk sda is full";
const other = "link eth0 is up";

const asks = {
  async openai() {
    const { OpenAI } = require("openai");
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
    const found = await client.embeddings.create({ model, input: [text, other] });
    return { vectors: found.data.map((one) => Array.from(one.embedding)), model: found.model };
  },
  async cohere() {
    const { CohereClientV2 } = require("cohere-ai");
    const client = new CohereClientV2({ environment: url, token: key });
    const options = { maxRetries: 0 };
    const about = { model, texts: [text, other], inputType: "search_document", embeddingTypes: ["float"] };
    const found = await client.embed(about, options);
    const ranks = await client.rerank({ model, query: text, documents: [other, text] }, options);
    return { vectors: found.embeddings.float, ranks: ranks.results.map((one) => one.index) };
  },
};

async function main() {
  const said = {};
  for (const [name, ask] of Object.entries(asks)) {
    try {
      said[name] = await ask();
    } catch (error) {
      said[name] = { status: error.status ?? error.statusCode, message: String(error.message) };
    }
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}

main();
