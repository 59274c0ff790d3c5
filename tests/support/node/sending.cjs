// Logs by a transport of Node, as a service does:
// node sending.cjs TRANSPORT URL LINES LINES_A_SECOND SERVICE
// It stays until it is ended: transports keep what they could not send, and send it again.
"use strict";

const [name, url, count, perSecond, service] = process.argv.slice(2);

function winstonLogger(transport) {
  const winston = require("winston");
  transport.on("error", () => {});
  transport.on("warning", () => {});
  return winston.createLogger({ transports: [transport] });
}

const makers = {
  "winston-elasticsearch"() {
    const { ElasticsearchTransport } = require("winston-elasticsearch");
    return winstonLogger(
      new ElasticsearchTransport({
        clientOpts: { node: `${url}/es` },
        index: service,
        flushInterval: 500,
        transformer: ({ message }) => ({ "@timestamp": new Date(), message, service }),
      }),
    );
  },
  "winston-loki"() {
    const winston = require("winston");
    const LokiTransport = require("winston-loki");
    return winstonLogger(
      new LokiTransport({
        host: url,
        interval: 1,
        labels: { service_name: service },
        format: winston.format.printf(({ message }) => message),
        onConnectionError: () => {},
      }),
    );
  },
  "pino-opentelemetry-transport"() {
    const pino = require("pino");
    const exporter = { protocol: "http", httpExporterOptions: { url: `${url}/v1/logs`, timeoutMillis: 60000 } };
    const processor = {
      recordProcessorType: "batch",
      processorConfig: { maxQueueSize: 1000000, maxExportBatchSize: 1000, scheduledDelayMillis: 500, exportTimeoutMillis: 60000 },
      exporterOptions: exporter,
    };
    const options = { resourceAttributes: { "service.name": service }, logRecordProcessorOptions: processor };
    return pino(pino.transport({ target: "pino-opentelemetry-transport", options }));
  },
};

const logger = makers[name]();
const began = Date.now();
let sent = 0;
const timer = setInterval(() => {
  const due = Math.min(Number(count), Math.ceil(((Date.now() - began) / 1000) * Number(perSecond)));
  while (sent < due) logger.warn(`${service} ${sent++} is full`);
  if (sent >= Number(count)) clearInterval(timer);
}, 20);
setInterval(() => {}, 1000);
