import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { portFlag } from '../command-line/common-flags.ts'
import { evalFlags, evalPrefixes } from '../eval/eval-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const defaultPort = 8080

const {
  // Left out: a server's tasks come from its clients, it never ends by itself, and its output is its log.
  limit: _limit,
  'pass-threshold': _passThreshold,
  'max-cost': _maxCost,
  'retry-failed': _retryFailed,
  json: _json,
  quiet: _quiet,
  ...sharedFlags
} = evalFlags

const serverFlags = {
  port: portFlag(defaultPort),
  host: {
    kind: 'text',
    value: '<address>',
    group: 'Server',
    help: 'The address to listen on; any but this machine’s own needs a key.',
    default: '127.0.0.1',
  },
  'access-key-env': {
    kind: 'text',
    value: '<variable>',
    group: 'Server',
    help: 'The environment variable with the key that clients must send. Without a key, none is asked for.',
    default: 'MILLRACE_API_KEY',
  },
  'max-queued': {
    kind: 'integer',
    value: '<count>',
    min: 1,
    group: 'Server',
    help: 'Rollouts that may wait for a place; past it, requests are refused with 429.',
    default: '16384',
  },
  'log-level': {
    kind: 'choice',
    choices: ['debug', 'info', 'warn', 'error', 'silent'],
    group: 'Server',
    help: 'JSON lines on standard error: one per settled rollout at info, those without a score at warn.',
    default: 'info',
  },
} as const satisfies FlagTable

const serveFlags = { ...serverFlags, ...sharedFlags }
export type ServeFlags = typeof serveFlags

export const serveCommand = defineCommand({
  name: 'serve',
  description:
    'Serves rollouts of an environment over HTTP: POST /v1/rollouts with one task or many, and the results come as they ' +
    'end. A request is on disk before it is accepted; killed and started again, the same command finishes what was ' +
    'accepted, and answers a request id that it knows with the same rollouts. Ctrl-C or SIGTERM once lets running ' +
    'rollouts end, twice stops them. docs/serve.md describes every route.',
  arguments: [
    {
      name: 'environment',
      required: true,
      help: 'an environment: a module (./environment.ts, a package) or the name of an example (arithmetic)',
    },
  ],
  flags: serveFlags,
  prefixes: evalPrefixes,
  examples: [
    {
      command: 'millrace serve arithmetic -m sim',
      explanation: `the built-in simulator, on port ${defaultPort} of this machine`,
    },
    {
      command:
        'millrace serve ./environment.ts -m Qwen/Qwen3-8B --base-url http://localhost:8000/v1 -c 1024 --workers auto',
      explanation: 'your own vLLM, 1,024 rollouts at once, in a worker per core',
    },
    {
      command: 'MILLRACE_API_KEY=<key> millrace serve ./environment.ts -m sim --host 0.0.0.0',
      explanation: 'for other machines, which must send the key',
    },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'ended by Ctrl-C or SIGTERM, and everything that ran has ended' },
    { code: exitCodes.failed, meaning: 'the server could not start or could not go on' },
    { code: exitCodes.usage, meaning: 'the command line or a configuration is wrong, or the port is taken' },
    { code: exitCodes.interrupted, meaning: 'stopped by a second Ctrl-C; the same command finishes what was accepted' },
    { code: exitCodes.terminated, meaning: 'stopped by a second SIGTERM; the same command finishes what was accepted' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database and an HTTP server.
    const { carryOutServe } = await import('../serving/carry-out-serve.ts')
    return await carryOutServe(invocation, io)
  },
})
