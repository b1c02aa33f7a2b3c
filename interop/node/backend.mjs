// A Backend: it sends what it is told to and tells what it hears.
//
//   node backend.mjs GATEWAY-URL BACKEND-ID
import WebSocket from 'ws';
import { now, orders, say } from './talk.mjs';

const [gatewayURL, clientId] = process.argv.slice(2);
const socket = new WebSocket(gatewayURL);
const send = (message) => socket.send(JSON.stringify({ ...message, timestamp: now(), version: '1.0' }));

socket.on('open', () => send({ type: 'REGISTER', clientId, clientType: 'BACKEND' }));
socket.on('message', (data, isBinary) => say('message', { message: JSON.parse(data), isBinary }));
socket.on('error', (error) => say('error', { text: String(error) }));
socket.on('close', (code) => say('closed', { code }));
orders(send);
