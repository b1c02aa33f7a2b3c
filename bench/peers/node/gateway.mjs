// A gateway of the shape the design note shows, as a good Node developer would write it: express and ws on one port, Maps for
// tables, JSON.parse and JSON.stringify for messages, a setTimeout per command, the built-in fetch for callbacks. It does
// REGISTER, COMMAND, COMMAND_RESPONSE, PROGRESS_UPDATE and HEARTBEAT, POST /api/commands (with ?wait=) and
// POST /api/commands/batch of PROTOCOL.md, well enough to be measured; it keeps no record of what has ended.
//
// usage: node gateway.mjs HOST:PORT
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { WebSocketServer } from 'ws';

const messageMax = 1 << 20;
const batchMax = 1000;
const waitMaxMs = 60_000;
const timeoutDefaultMs = 30_000;
const callbackAttempts = 3;
const callbackTimeoutMs = 10_000;

const connections = new Map(); // client id -> WebSocket
const routes = new Map(); // device id -> edge id
const pending = new Map(); // requestRef -> { source, callback, target, timeoutMs, timer, done }

class Refused extends Error {
  constructor(code, status, message) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

const now = () => new Date().toISOString();
const makeRef = () => `cmd-${Date.now()}-${Math.random().toString(36).slice(2, 11)}`;

function send(id, message) {
  const socket = connections.get(id);
  if (socket?.readyState === socket?.OPEN) socket?.send(JSON.stringify(message));
}

// dispatch sends a command to its device's edge and remembers who asked: a Backend's id, a callback, or done.
function dispatch(command, { source, callback, done }) {
  const target = command.targetClientId;
  const edgeId = routes.get(target);
  if (edgeId === undefined) throw new Refused('TARGET_NOT_FOUND', 404, `No route found for device ${target}`);
  const edge = connections.get(edgeId);
  if (!edge) throw new Refused('EDGE_UNAVAILABLE', 503, `Edge ${edgeId} not connected`);
  const ref = command.requestRef;
  if (pending.has(ref)) throw new Refused('DUPLICATE_REQUEST', 409, `${ref} is in flight`);
  const entry = { source, callback, target, done, timeoutMs: command.timeout || timeoutDefaultMs };
  entry.timer = setTimeout(expire, entry.timeoutMs, ref);
  pending.set(ref, entry);
  edge.send(JSON.stringify(command));
}

function expire(ref) {
  const message = `Command timeout after ${pending.get(ref).timeoutMs}ms`;
  finish({ type: 'ERROR', code: 'TIMEOUT', status: 'TIMEOUT', message, requestRef: ref, timestamp: now() });
}

// finish ends a command and tells whoever asked.
function finish(message) {
  const entry = pending.get(message.requestRef);
  if (!entry) return;
  pending.delete(message.requestRef);
  clearTimeout(entry.timer);
  tell(entry, message);
  entry.done?.(message);
}

function progress(message) {
  const entry = pending.get(message.requestRef);
  if (!entry) return;
  entry.timer.refresh();
  tell(entry, message);
}

function tell(entry, message) {
  if (entry.source) send(entry.source, message);
  if (entry.callback) callBack(entry.callback, message, entry.target);
}

async function callBack(url, message, target) {
  const { type, requestRef, status, result, executionTime, timestamp } = message;
  const body = JSON.stringify({ requestRef, status, result, timestamp, executionTime, type, targetClientId: target, progress: message.progress });
  for (let attempt = 1; attempt <= callbackAttempts; attempt++) {
    try {
      const answer = await fetch(url.replace(/\{request_?ref\}/i, encodeURIComponent(requestRef)), {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Callback-Attempt': `${attempt}/${callbackAttempts}` },
        body,
        signal: AbortSignal.timeout(callbackTimeoutMs),
      });
      await answer.arrayBuffer(); // read to its end, so that the connection serves the next
      if (answer.ok) return;
    } catch {
      // tried again below
    }
    if (attempt < callbackAttempts) await sleep(1000 * 2 ** (attempt - 1));
  }
  console.error(`callback of ${requestRef} failed`);
}

function register(socket, message) {
  const { clientId, clientType, edgeInfo, devices } = message;
  const device = clientType === 'DEVICE';
  const owner = device && edgeInfo ? edgeInfo.edgeId : clientId;
  socket.id ??= owner;
  connections.set(owner, socket);
  if (device) routes.set(clientId, owner);
  for (const d of devices ?? []) routes.set(typeof d === 'string' ? d : d.clientId, owner);
  socket.send(JSON.stringify({ type: 'REGISTER_ACK', clientId, clientType, status: 'REGISTERED', heartbeatInterval: 30_000, version: '1.0', timestamp: now() }));
}

function onMessage(socket, raw) {
  let message;
  try {
    message = JSON.parse(raw);
    switch (message.type) {
      case 'REGISTER':
        return register(socket, message);
      case 'COMMAND':
        message.requestRef ??= makeRef();
        message.sourceClientId = socket.id;
        return dispatch(message, { source: socket.id, callback: message.callback });
      case 'COMMAND_RESPONSE':
        return finish(message);
      case 'PROGRESS_UPDATE':
        return progress(message);
      case 'HEARTBEAT':
        return socket.send(JSON.stringify({ type: 'HEARTBEAT_ACK', timestamp: now() }));
      default:
        throw new Refused('INVALID_MESSAGE', 400, `unknown type ${message.type}`);
    }
  } catch (err) {
    const error = { type: 'ERROR', code: err.code ?? 'INVALID_MESSAGE', message: err.message, requestRef: message?.requestRef, timestamp: now() };
    socket.send(JSON.stringify(error));
  }
}

// post makes a command of a request's body and sends it.
function post(body, done) {
  const requestRef = body.request_ref ?? makeRef();
  const command = {
    type: 'COMMAND',
    requestRef,
    targetClientId: body.target_client_id,
    command: body.command,
    priority: body.priority ?? 'NORMAL',
    timeout: body.timeout || timeoutDefaultMs,
    callback: body.callback_url,
    timestamp: now(),
    version: '1.0',
  };
  dispatch(command, { callback: body.callback_url, done });
  return requestRef;
}

const app = express();
app.disable('x-powered-by');
app.disable('etag');
app.use(express.json({ limit: messageMax }));

app.post(['/api/commands', '/api/command'], (req, res) => {
  const wait = Math.min(Number(req.query.wait) || 0, waitMaxMs);
  if (!wait) {
    const requestRef = post(req.body);
    res.json({ success: true, requestRef, message: 'Command accepted for processing' });
    return;
  }
  const answer = (status, result) => res.json({ success: true, requestRef, status, result });
  const timer = setTimeout(() => answer('DISPATCHED'), wait);
  let requestRef;
  try {
    requestRef = post(req.body, (message) => {
      clearTimeout(timer);
      if (!res.headersSent) answer(message.status, message.result);
    });
  } catch (err) {
    clearTimeout(timer);
    throw err;
  }
});

app.post('/api/commands/batch', (req, res) => {
  const { commands } = req.body;
  if (!Array.isArray(commands) || commands.length > batchMax) throw new Refused('INVALID_REQUEST', 400, 'commands: 1 to 1000');
  const results = commands.map((item) => {
    const targetClientId = item.target_client_id;
    try {
      return { targetClientId, requestRef: post(item) };
    } catch (err) {
      return { targetClientId, error: err.message, code: err.code };
    }
  });
  const accepted = results.filter((r) => r.requestRef).length;
  res.json({ success: true, accepted, rejected: results.length - accepted, results });
});

app.use((err, req, res, next) => {
  if (res.headersSent) return next(err);
  res.status(err.status ?? 500).json({ success: false, error: err.message, code: err.code ?? 'INTERNAL' });
});

const server = http.createServer(app);
const sockets = new WebSocketServer({ server, perMessageDeflate: false, maxPayload: messageMax });
sockets.on('connection', (socket) => {
  socket.on('message', (raw) => onMessage(socket, raw));
  socket.on('error', () => socket.terminate());
  socket.on('close', () => {
    if (connections.get(socket.id) === socket) connections.delete(socket.id);
  });
});

const [host, port] = (process.argv[2] ?? '').split(':');
if (!port) {
  console.error('usage: node gateway.mjs HOST:PORT');
  process.exit(2);
}
server.listen({ host, port: Number(port), backlog: 4096 }, () => console.log(`listening on ${host}:${port}`));
