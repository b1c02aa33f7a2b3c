// A device behind an Edge: it does what a command's type says.
//
//   node device.mjs EDGE-URL DEVICE-ID
import WebSocket from 'ws';
import { now, orders, say } from './talk.mjs';

const [edgeURL, id] = process.argv.slice(2);
const socket = new WebSocket(edgeURL);
const send = (message) => socket.send(JSON.stringify({ ...message, timestamp: now(), version: '1.0' }));

const respond = (requestRef, more) => send({ type: 'COMMAND_RESPONSE', requestRef, executionTime: 42, ...more });

const does = {
  SET_BRIGHTNESS: ({ requestRef, command }) => respond(requestRef, { status: 'COMPLETED', result: { brightness: command.value } }),
  BREAK: ({ requestRef }) => respond(requestRef, { status: 'FAILED', error: { code: 'LAMP_BROKEN', message: 'the lamp is broken' } }),
  PROGRAM: ({ requestRef, command }) => {
    for (const [n, stage] of ['DOWNLOADING', 'INSTALLING', 'DEPLOYING'].entries()) {
      send({ type: 'PROGRESS_UPDATE', requestRef, progress: 25 * (n + 1), stage });
    }
    respond(requestRef, { status: 'SUCCESS', result: { programId: command.programId, played: true } });
  },
  HANG: () => {},
};

socket.on('open', () => send({ type: 'REGISTER', clientId: id, clientType: 'DEVICE', deviceInfo: { model: 'P3' } }));
socket.on('message', (data) => {
  const message = JSON.parse(data);
  say('message', { message });
  if (message.type === 'COMMAND') does[message.command.commandType](message);
});
socket.on('error', () => {});
socket.on('close', () => say('closed'));
orders(() => {});
