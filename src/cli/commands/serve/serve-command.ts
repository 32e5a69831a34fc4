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
    host: flag.text('<address>', 'The address to listen on; an address that other machines can reach needs a key.', {
      default: '127.0.0.1',
    }),
    'access-key-env': flag.text(
      '<variable>',
      'The environment variable with the key that clients must send. If it is not set, clients send no key.',
      { default: 'MILLRACE_API_KEY' },
    ),
    'max-queued': flag.integer(
      '<count>',
      'How many rollouts may wait to start; further requests are rejected with 429.',
      { min: 1, default: '16384' },
    ),
    services: flag.text(
      '<file.yaml>',
      'More environments to serve, by name: { name: { environment, options }, … }. Paths in it are relative to the file.',
    ),
    'log-level': flag.choice(
      ['debug', 'info', 'warn', 'error', 'silent'],
      'JSON lines on standard error: one per settled rollout at info, rollouts without a score at warn.',
      { default: 'info' },
    ),
  }),
  ...flagGroup('NeMo Gym', {
    'nemo-gym': flag.switch(
      'The environments are also agents and resources servers of NeMo Gym 0.4.0, with its head at the same address.',
    ),
    'nemo-gym-failures': flag.choice(
      ['class', 'status'],
      'How a rollout that failed, or a row that does not fit, is answered: with 200 and _ng_failure_class, so that its collector goes on, or with an HTTP error.',
      { default: 'class' },
    ),
  }),
  ...sharedFlags,
} as const satisfies FlagTable
export type ServeFlags = typeof serveFlags

export const command = defineCommand({
  name: 'serve',
  description:
    'Serves rollouts of environments over HTTP: POST /v1/rollouts with one task or many, and the results come as they ' +
    'end. A request is on disk before it is accepted; after a kill and a restart, the same command finishes the ' +
    'accepted rollouts, and answers a known request id with the same rollouts. Ctrl-C or SIGTERM once lets running ' +
    'rollouts end, twice stops them. docs/serve.md describes every route.',
  arguments: [
    {
      name: '[name=]environment',
      required: false,
      isList: true,
      help: 'an environment: a module (./environment.ts, a package) or the name of an example (arithmetic); several are served under /agents/<name>',
    },
  ],
  flags: serveFlags,
  prefixes: evalPrefixes,
  examples: {
    'millrace serve arithmetic -m sim': `the built-in simulator, on port ${defaultPort} of this machine`,
    'millrace serve ./environment.ts -m Qwen/Qwen3-8B --base-url http://localhost:8000/v1 -c 1024 --workers auto':
      'your own vLLM, 1,024 rollouts at once, in a worker per core',
    'millrace serve math=./math.ts ./browse.ts -m sim':
      'two environments on one port: /agents/math/v1/rollouts, and the first one also at /v1/rollouts',
    'millrace serve ./environment.ts -m sim --nemo-gym': 'agents for NeMo Gym, whose head_server is this address',
    'MILLRACE_API_KEY=<key> millrace serve ./environment.ts -m sim --host 0.0.0.0':
      'for other machines, which must send the key',
  },
  exitCodes: {
    ok: 'ended by Ctrl-C or SIGTERM, and everything that ran has ended',
    failed: 'the server could not start or could not go on',
    usage: 'the command line or a configuration is wrong, or the port is taken',
    interrupted: 'stopped by a second Ctrl-C; the same command finishes the accepted rollouts',
    terminated: 'stopped by a second SIGTERM; the same command finishes the accepted rollouts',
  },
  run: async (invocation, io) => (await import('./run-serve.ts')).runServe(invocation, io),
})
