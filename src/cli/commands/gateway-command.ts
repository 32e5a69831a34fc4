import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { portFlag, runsFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const defaultGatewayPort = 8787

const gatewayFlags = {
  backend: {
    kind: 'texts',
    value: '<url>',
    group: 'Backends',
    help: 'Where models are served, up to and including the version: http://localhost:8000/v1. One that is not there yet is waited for. sim is built in. Several times for several.',
  },
  model: {
    kind: 'text',
    short: 'm',
    value: '<name>',
    group: 'Backends',
    help: 'The model that all of them serve. [default: every model they list]',
  },
  config: {
    kind: 'text',
    value: '<file>',
    group: 'Backends',
    help: 'Models, aliases, keys and bounds: YAML, or a TypeScript module that exports the same. Flags come before it.',
  },
  'no-poll': {
    kind: 'switch',
    group: 'Backends',
    help: 'Do not ask backends that have answered for their lists while no request goes to them, every 10 s and for /ready. What they list then holds until the gateway is started again.',
  },
  'max-wait': {
    kind: 'duration',
    value: '<duration>',
    group: 'Backends',
    help: 'How long one request may wait in all for a backend to take it, as while the backend restarts. A model’s own maxWaitMs comes first. [default: 5m]',
  },
  port: portFlag(defaultGatewayPort),
  host: {
    kind: 'text',
    value: '<address>',
    group: 'Server',
    help: 'The address to listen on; any but this machine’s own needs an admin key of at least 16 characters.',
    default: '127.0.0.1',
  },
  'public-url': {
    kind: 'text',
    value: '<url>',
    group: 'Server',
    help: 'Where clients reach the gateway, for the urls of sessions: https://gateway.example.com behind a proxy. [default: http and the host that they ask for]',
  },
  'admin-key-env': {
    kind: 'text',
    value: '<variable>',
    group: 'Server',
    help: 'The environment variable with the admin key. On this machine alone, one is made if there is none.',
    default: 'MILLRACE_ADMIN_KEY',
  },
  'log-level': {
    kind: 'choice',
    choices: ['debug', 'info', 'warn', 'error', 'silent'],
    group: 'Server',
    help: 'JSON lines on standard error: one per request at info, those that failed at warn.',
    default: 'info',
  },
  run: {
    kind: 'text',
    value: '<name>',
    group: 'The run',
    help: 'The run whose folder keeps the sessions. The same name continues it.',
    default: 'gateway',
  },
  runs: { ...runsFlag, group: 'The run' },
} as const satisfies FlagTable

export type GatewayFlags = typeof gatewayFlags

export const gatewayCommand = defineCommand({
  name: 'gateway',
  description:
    'Serves models to agents in any language, and records what they say: OpenAI Chat Completions and Responses and ' +
    'Anthropic Messages, streams included, in front of vLLM, SGLang or any compatible server. What is said in a session is ' +
    'kept exactly to the token, recorded before the reply has ended; killed and started again, the same command knows every ' +
    'session and every reply. Ctrl-C, SIGTERM or a closed terminal (SIGHUP) lets running requests end, a second Ctrl-C or SIGTERM stops them. docs/gateway.md describes every route.',
  arguments: [],
  flags: gatewayFlags,
  examples: [
    {
      command: 'millrace gateway --backend sim',
      explanation: `the built-in simulator, on port ${defaultGatewayPort} of this machine`,
    },
    {
      command: 'millrace gateway --backend http://gpu-1:8000/v1 --backend http://gpu-2:8000/v1',
      explanation: 'two servers; a session stays with the one that holds its prefix',
    },
    {
      command: 'MILLRACE_ADMIN_KEY=<key> millrace gateway --config gateway.yaml --host 0.0.0.0',
      explanation: 'for other machines, as a file says',
    },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'ended by Ctrl-C, SIGTERM or SIGHUP, and everything that ran has ended' },
    { code: exitCodes.failed, meaning: 'the gateway could not start or could not go on' },
    { code: exitCodes.usage, meaning: 'the command line or a configuration is wrong, or the port is taken' },
    {
      code: exitCodes.hungUp,
      meaning: 'its terminal was closed (SIGHUP), then a signal stopped it; the same command continues',
    },
    { code: exitCodes.interrupted, meaning: 'Ctrl-C, then a second signal stopped it; the same command continues' },
    { code: exitCodes.terminated, meaning: 'SIGTERM, then a second signal stopped it; the same command continues' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database and an HTTP server.
    const { carryOutGateway } = await import('../serving/carry-out-gateway.ts')
    return await carryOutGateway(invocation, io)
  },
})
