import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, portFlag, runsFlag } from '../../command-line/flags.ts'

export const defaultGatewayPort = 8787

const gatewayFlags = {
  ...flagGroup('Backends', {
    backend: flag.texts(
      '<url>',
      'Where models are served, up to and including the version: http://localhost:8000/v1. One that is not there yet is waited for. sim is built in. Several times for several.',
    ),
    model: flag.text('<name>', 'The model that all of them serve. [default: every model they list]', { short: 'm' }),
    config: flag.text(
      '<file>',
      'Models, aliases, keys and bounds: YAML, or a TypeScript module that exports the same. Flags come before it.',
    ),
    'no-poll': flag.switch(
      'Do not ask backends that have answered for their lists while no request goes to them, every 10 s. What they list, and that they can be reached, then holds until the gateway is started again.',
    ),
    'max-wait': flag.duration(
      'How long one request may wait in all for a backend to take it, as while the backend restarts. A model’s own maxWaitMs comes first. [default: 5m]',
    ),
  }),
  ...flagGroup('Server', {
    port: portFlag(defaultGatewayPort),
    host: flag.text(
      '<address>',
      'The address to listen on; any but this machine’s own needs an admin key of at least 16 characters.',
      { default: '127.0.0.1' },
    ),
    'public-url': flag.text(
      '<url>',
      'Where clients reach the gateway, for the urls of sessions: https://gateway.example.com behind a proxy. [default: http and the host that they ask for]',
    ),
    'admin-key-env': flag.text(
      '<variable>',
      'The environment variable with the admin key. On this machine alone, one is made if there is none.',
      { default: 'MILLRACE_ADMIN_KEY' },
    ),
    'log-level': flag.choice(
      ['debug', 'info', 'warn', 'error', 'silent'],
      'JSON lines on standard error: one per request at info, those that failed at warn.',
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
    'Serves models to agents in any language, and records what they say: OpenAI Chat Completions and Responses and ' +
    'Anthropic Messages, streams included, in front of vLLM, SGLang or any compatible server. What is said in a session is ' +
    'kept exactly to the token, recorded before the reply has ended; killed and started again, the same command knows every ' +
    'session and every reply. Ctrl-C, SIGTERM or a closed terminal (SIGHUP) lets running requests end, a second Ctrl-C or SIGTERM stops them. docs/gateway.md describes every route.',
  arguments: [],
  flags: gatewayFlags,
  examples: {
    'millrace gateway --backend sim': `the built-in simulator, on port ${defaultGatewayPort} of this machine`,
    'millrace gateway --backend http://gpu-1:8000/v1 --backend http://gpu-2:8000/v1':
      'two servers; a session stays with the one that holds its prefix',
    'MILLRACE_ADMIN_KEY=<key> millrace gateway --config gateway.yaml --host 0.0.0.0':
      'for other machines, as a file says',
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
