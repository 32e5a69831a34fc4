import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, portFlag } from '../../command-line/flags.ts'
import { evalFlags, evalPrefixes } from '../eval/eval-command.ts'

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

const serveFlags = {
  ...flagGroup('Server', {
    port: portFlag(defaultPort),
    host: flag.text('<address>', 'The address to listen on; any but this machine’s own needs a key.', {
      default: '127.0.0.1',
    }),
    'access-key-env': flag.text(
      '<variable>',
      'The environment variable with the key that clients must send. Without a key, none is asked for.',
      { default: 'MILLRACE_API_KEY' },
    ),
    'max-queued': flag.integer(
      '<count>',
      'Rollouts that may wait for a place; past it, requests are refused with 429.',
      { min: 1, default: '16384' },
    ),
    'log-level': flag.choice(
      ['debug', 'info', 'warn', 'error', 'silent'],
      'JSON lines on standard error: one per settled rollout at info, those without a score at warn.',
      { default: 'info' },
    ),
  }),
  ...sharedFlags,
} as const satisfies FlagTable
export type ServeFlags = typeof serveFlags

export const command = defineCommand({
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
  examples: {
    'millrace serve arithmetic -m sim': `the built-in simulator, on port ${defaultPort} of this machine`,
    'millrace serve ./environment.ts -m Qwen/Qwen3-8B --base-url http://localhost:8000/v1 -c 1024 --workers auto':
      'your own vLLM, 1,024 rollouts at once, in a worker per core',
    'MILLRACE_API_KEY=<key> millrace serve ./environment.ts -m sim --host 0.0.0.0':
      'for other machines, which must send the key',
  },
  exitCodes: {
    ok: 'ended by Ctrl-C or SIGTERM, and everything that ran has ended',
    failed: 'the server could not start or could not go on',
    usage: 'the command line or a configuration is wrong, or the port is taken',
    interrupted: 'stopped by a second Ctrl-C; the same command finishes what was accepted',
    terminated: 'stopped by a second SIGTERM; the same command finishes what was accepted',
  },
  run: async (invocation, io) => (await import('./run-serve.ts')).runServe(invocation, io),
})
