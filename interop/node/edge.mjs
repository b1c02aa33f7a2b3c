// An Edge after the design note: it has no REGISTER of its own but registers each device
// with an edgeInfo, hands commands to its devices as they are named, says
// DEVICE_NOT_FOUND of those that it does not have, and passes everything else on.
//
//   node edge.mjs GATEWAY-URL EDGE-ID RECONNECT-MS
import WebSocket, { WebSocketServer } from 'ws';
import { now, orders, say } from './talk.mjs';

const [gatewayURL, edgeId, firstDelay] = process.argv.slice(2);
const maxAttempts = 5;
const devices = new Map(); // id -> its connection
let gateway = null;
let errorsCarryRef = false; // the note's sendError(code, message) has none

function toGateway(message) {
  if (gateway?.readyState === WebSocket.OPEN) gateway.send(message);
}

function register(deviceId) {
  toGateway(JSON.stringify({
    type: 'REGISTER', clientId: deviceId, clientType: 'DEVICE',
    edgeInfo: { edgeId, edgeVersion: '1.3.0' }, timestamp: now(), version: '1.0',
  }));
}

function onCommand(message) {
  const device = devices.get(message.targetClientId);
  if (device) {
    device.send(JSON.stringify(message));
    return;
  }
  const error = { type: 'ERROR', code: 'DEVICE_NOT_FOUND', message: `Device ${message.targetClientId} not connected`, timestamp: now() };
  if (errorsCarryRef) error.requestRef = message.requestRef;
  toGateway(JSON.stringify(error));
}

function onGatewayMessage(data) {
  const message = JSON.parse(data);
  say('gateway', { message });
  if (message.type === 'COMMAND') onCommand(message);
  else if (message.type === 'CANCEL') devices.get(message.targetClientId)?.send(JSON.stringify(message));
}

function connect(attempt) {
  const socket = new WebSocket(gatewayURL);
  socket.on('open', () => {
    gateway = socket;
    attempt = 0;
    say('connected');
    for (const id of devices.keys()) register(id);
  });
  socket.on('message', onGatewayMessage);
  socket.on('error', () => {}); // a close follows
  socket.on('close', (code) => {
    if (gateway === socket) gateway = null;
    say('disconnected', { code });
    if (attempt < maxAttempts) setTimeout(() => connect(attempt + 1), Number(firstDelay) * 2 ** attempt);
    else say('permanently offline');
  });
}

function onDeviceMessage(socket, data) {
  const message = JSON.parse(data);
  if (message.type === 'REGISTER') {
    socket.deviceId = message.clientId;
    devices.set(message.clientId, socket);
    socket.send(JSON.stringify({ type: 'REGISTER_ACK', clientId: message.clientId, clientType: 'DEVICE', status: 'REGISTERED' }));
    register(message.clientId);
  } else if (message.type === 'PROGRESS_UPDATE') {
    toGateway(data); // a Buffer: it goes as a binary message
  } else {
    toGateway(JSON.stringify(message));
  }
}

const server = new WebSocketServer({ host: '127.0.0.1', port: 0 }, () => {
  say('listening', { url: `ws://127.0.0.1:${server.address().port}` });
  connect(0);
});
server.on('connection', (socket) => {
  socket.on('message', (data) => onDeviceMessage(socket, data));
  socket.on('error', () => {});
  socket.on('close', () => {
    if (devices.get(socket.deviceId) === socket) devices.delete(socket.deviceId);
    say('device left', { id: socket.deviceId });
  });
});

orders((order) => {
  if (order.do === 'errors carry ref') errorsCarryRef = true;
  if (order.do === 'drop link') gateway?.terminate();
});
