import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, portFlag, runsFlag } from '../../command-line/flags.ts'

export const defaultGatewayPort = 8787

const gatewayFlags = {
  ...flagGroup('Backends', {
    backend: flag.texts(
      '<url>',
      'The base URL of a backend, up to and including the version: http://localhost:8000/v1. The gateway waits for a backend that is not up yet. sim is built in. Repeat the flag for several backends.',
    ),
    model: flag.text('<name>', 'The model that all backends serve. [default: every model that they list]', {
      short: 'm',
    }),
    'exact-tokens': flag.switch(
      'Write the prompts of all models as token ids and read replies from their ids, so that a later prompt holds exactly what was sampled. The servers must take ids: vLLM, SGLang.',
    ),
    tokenizer: flag.text(
      '<folder>',
      'With --exact-tokens: the folder with tokenizer.json and the chat template. [default: the folder that the server names]',
    ),
    routing: flag.choice(
      ['sticky', 'round-robin', 'least-loaded', 'consistent-hash', 'power-of-two'],
      'How the backend of a request is chosen, for models with several. sticky: a session stays with its backend unless that has far more to do than the others. A model’s own routing takes precedence. [default: sticky]',
    ),
    config: flag.text(
      '<file>',
      'Models, aliases, keys and bounds: YAML, or a TypeScript module that exports the same. Flags override it.',
    ),
    'no-poll': flag.switch(
      'Do not poll the model lists of idle backends every 10 s after their first answer. Their lists, and their state as reachable, then stay the same until the gateway restarts.',
    ),
    'max-wait': flag.duration(
      'How long one request may wait in total until a backend accepts it, for example while the backend restarts. A model’s own maxWaitMs takes precedence. [default: 5m]',
    ),
  }),
  ...flagGroup('Server', {
    port: portFlag(defaultGatewayPort),
    host: flag.text(
      '<address>',
      'The address to listen on; an address that other machines can reach needs an admin key of at least 16 characters.',
      { default: '127.0.0.1' },
    ),
    'public-url': flag.text(
      '<url>',
      'The base URL under which clients reach the gateway, for the urls of sessions: https://gateway.example.com behind a proxy. [default: http and the Host of the request]',
    ),
    'admin-key-env': flag.text(
      '<variable>',
      'The environment variable with the admin key. If it is not set and only this machine can reach the gateway, the gateway makes a key.',
      { default: 'MILLRACE_ADMIN_KEY' },
    ),
    'nemo-gym': flag.switch(
      'Also be a model server of NeMo Gym: requests to models need no key, and each session is a cookie. Only on an address of this machine.',
    ),
    areal: flag.switch(
      'Also serve AReaL’s clients: sessions, rewards and exports on AReaL’s routes. Only the base URL changes for them.',
    ),
    'areal-strict': flag.switch(
      'The same, with honest statuses (400, 404, 429, 503) where AReaL’s servers answer 500.',
    ),
    'areal-tensors': flag.choice(
      ['inline', 'reference'],
      'The same, and whether exports have tensors in them or refer to tensors that clients fetch. [default: inline]',
    ),
    'log-level': flag.choice(
      ['debug', 'info', 'warn', 'error', 'silent'],
      'JSON lines on standard error: one per request at info, failed requests at warn.',
      { default: 'info' },
    ),
  }),
  ...flagGroup('The run', {
    run: flag.text('<name>', 'The run whose folder keeps the sessions. The same name continues it.', {
      default: 'gateway',
    }),
    runs: runsFlag,
  }),
} as const satisfies FlagTable

export type GatewayFlags = typeof gatewayFlags

export const command = defineCommand({
  name: 'gateway',
  description:
    'Serves models to agents in any language, and records the conversations: OpenAI Chat Completions and Responses and ' +
    'Anthropic Messages, streams included, in front of vLLM, SGLang or any compatible server. The record of a session is ' +
    'exact to the token, and a reply is recorded before it has ended; after a kill and a restart, the same command knows every ' +
    'session and every reply. Ctrl-C, SIGTERM or a closed terminal (SIGHUP) lets running requests end, a second Ctrl-C or SIGTERM stops them. docs/gateway.md describes every route.',
  arguments: [],
  flags: gatewayFlags,
  examples: {
    'millrace gateway --backend sim': `the built-in simulator, on port ${defaultGatewayPort} of this machine`,
    'millrace gateway --backend http://gpu-1:8000/v1 --backend http://gpu-2:8000/v1':
      'two servers; a session stays with the one that holds its prefix',
    'millrace gateway --backend http://localhost:8000/v1 --exact-tokens --nemo-gym':
      'a model server for NeMo Gym’s agents, with tokens',
    'MILLRACE_ADMIN_KEY=<key> millrace gateway --backend http://localhost:8000/v1 --areal':
      'rollouts for AReaL, with the admin key of its configuration',
    'MILLRACE_ADMIN_KEY=<key> millrace gateway --config gateway.yaml --host 0.0.0.0':
      'for other machines, configured by a file',
  },
  exitCodes: {
    ok: 'ended by Ctrl-C, SIGTERM or SIGHUP, and everything that ran has ended',
    failed: 'the gateway could not start or could not go on',
    usage: 'the command line or a configuration is wrong, or the port is taken',
    hungUp: 'its terminal was closed (SIGHUP), then a signal stopped it; the same command continues',
    interrupted: 'Ctrl-C, then a second signal stopped it; the same command continues',
    terminated: 'SIGTERM, then a second signal stopped it; the same command continues',
  },
  run: async (invocation, io) => (await import('./run-gateway.ts')).runGateway(invocation, io),
})
