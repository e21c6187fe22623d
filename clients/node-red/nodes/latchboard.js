/** Node-RED nodes: a service with its API key, and what a flow does with it. */
const WebSocket = require("ws");

const SHOWN = { wait: ["blue", "ring"], good: ["green", "dot"], bad: ["red", "dot"], warn: ["yellow", "ring"] };

module.exports = (RED) => {
  /** Holds URL and key; the other nodes share its client. */
  function Service(config) {
    RED.nodes.createNode(this, config);
    this.clientModule = import("latchboard-client"); // an ES module
    this.client = this.clientModule.then(({ Latchboard }) => new Latchboard(config.url, { apiKey: this.credentials.apiKey, webSocket: WebSocket }));
  }

  /** Sends a command. Output: the execution when the device has done it, or with "wait for" nothing the answer at once. */
  function Command(config) {
    RED.nodes.createNode(this, config);
    const service = RED.nodes.getNode(config.service);
    const signal = closeSignal(this);
    this.on("input", async (msg, send, done) => {
      try {
        const { deviceId, command } = commandOf(config, msg);
        show(this, "wait", `${command.cmd} …`);
        const client = await required(service).client;
        const options = { timeoutSeconds: Number(config.timeout) || 60, signal };
        msg.payload =
          config.waitFor === "nothing"
            ? await client.post("/api/v1/devices/{deviceId}/command", { path: { deviceId }, body: command, signal })
            : await client.runCommand(deviceId, command, options);
        msg.deviceId = deviceId;
        show(this, "good", `${command.cmd} ${msg.payload.status}`);
        send(msg);
        done();
      } catch (error) {
        if (signal.aborted) done();
        else fail(this, error, msg, done);
      }
    });
  }

  /** Waits for the decision on `msg.payload.approvalId`. First output: approved; second: denied or expired. */
  function Approval(config) {
    RED.nodes.createNode(this, config);
    const service = RED.nodes.getNode(config.service);
    const signal = closeSignal(this);
    this.on("input", async (msg, send, done) => {
      try {
        const { ApprovalRefusedError } = await required(service).clientModule;
        const deviceId = needed(msg.deviceId ?? config.device, "msg.deviceId");
        const approvalId = needed(msg.payload?.approvalId ?? msg.approvalId, "msg.payload.approvalId");
        const client = await service.client;
        show(this, "wait", "waits for a decision");
        try {
          msg.payload = await client.waitForApproval(deviceId, approvalId, Number(config.timeout) || 86_400, { signal });
          show(this, "good", "approved");
          send([msg, null]);
        } catch (error) {
          if (!(error instanceof ApprovalRefusedError)) throw error;
          msg.payload = { approvalId, status: error.status, note: error.note };
          show(this, "warn", error.status.toLowerCase());
          send([null, msg]);
        }
        done();
      } catch (error) {
        if (signal.aborted) done();
        else fail(this, error, msg, done);
      }
    });
  }

  /** Sends each event of the live feed. It keeps its cursor in the node's context, and resumes from there. */
  function LiveFeed(config) {
    RED.nodes.createNode(this, config);
    const service = RED.nodes.getNode(config.service);
    let feed;
    const follow = async () => {
      const client = await required(service).client;
      feed = client.feed({
        types: (config.types ?? "").split(",").map((type) => type.trim()).filter(Boolean),
        ...(config.device ? { deviceId: config.device } : {}),
        ...(this.context().get("cursor") ? { cursor: this.context().get("cursor") } : {}),
        onInterruption: (reason, pauseMs) => show(this, "warn", `${reason}; again in ${Math.round(pauseMs / 1000)} s`),
      });
      for await (const event of feed) {
        show(this, "good", "connected");
        if (event.type !== "initial_state" || config.initialState) this.send({ topic: event.type, deviceId: event.deviceId, payload: event });
        this.context().set("cursor", feed.cursor);
      }
    };
    follow().catch((error) => fail(this, error, {}));
    this.on("close", () => feed?.close());
  }

  RED.nodes.registerType("latchboard-service", Service, { credentials: { apiKey: { type: "password" } } });
  RED.nodes.registerType("latchboard-command", Command);
  RED.nodes.registerType("latchboard-approval", Approval);
  RED.nodes.registerType("latchboard-feed", LiveFeed);
};

/** `msg.payload`: "ON", true, or `{cmd, channel, params, reason}`; anything else runs the node's own command. */
function commandOf(config, msg) {
  const { payload } = msg;
  const given = typeof payload === "boolean" ? { cmd: payload ? "ON" : "OFF" } : typeof payload === "string" && payload !== "" ? { cmd: payload } : payload?.cmd ? payload : {};
  const cmd = needed(config.cmd || given.cmd, "a command in the node, or msg.payload");
  const channel = config.channel ? Number(config.channel) : given.channel;
  const command = { cmd, channel, params: given.params, reason: given.reason ?? msg.reason ?? (config.reason || undefined) };
  return { deviceId: needed(config.device || msg.deviceId, "a device in the node, or msg.deviceId"), command };
}

function needed(value, what) {
  if (!value) throw new Error(`${what} is missing.`);
  return value;
}

function required(service) {
  return needed(service, "The Latchboard service");
}

/** Aborted when the node is removed or deployed again: nothing may wait for it any longer. */
function closeSignal(node) {
  const closing = new AbortController();
  node.on("close", () => closing.abort());
  return closing.signal;
}

function show(node, kind, text) {
  const [fill, shape] = SHOWN[kind];
  node.status({ fill, shape, text });
}

/** To the catch nodes, with the service's code in `msg.code`. */
function fail(node, error, msg, done) {
  show(node, "bad", error.code ?? error.message);
  msg.code = error.code;
  if (done) done(error);
  else node.error(error, msg);
}
