// What the three programs share: one JSON object a line on stdout for the test to read,
// one a line on stdin for what the test wants.
import { createInterface } from 'node:readline';

export function say(event, more = {}) {
  process.stdout.write(JSON.stringify({ event, ...more }) + '\n');
}

// orders calls fn with each order; the program ends with its stdin.
export function orders(fn) {
  createInterface({ input: process.stdin }).on('line', (line) => fn(JSON.parse(line))).on('close', () => process.exit(0));
}

export const now = () => new Date().toISOString();
