import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, maxPort } from '../../command-line/flags.ts'
import { evalPrefixes } from '../eval/eval-command.ts'

export const toolsFlags = {
  ...flagGroup('list, doctor', {
    server: flag.text('<name>', 'Only this server. [default: all of them]'),
  }),
  ...flagGroup('call', {
    arg: flag.texts(
      '<name>=<value>',
      'An argument, instead of JSON; may be given several times. Valid JSON is parsed, unless the tool expects text.',
    ),
  }),
  ...flagGroup('call, serve', {
    task: flag.integer('<number>', 'The task that an environment’s own tools work on, from 0.', { default: '0' }),
  }),
  ...flagGroup('serve', {
    http: flag.integer(
      '<port>',
      'Serve over HTTP on this machine; 0 for any free port. [default: standard input and output]',
      { max: maxPort },
    ),
  }),
  ...flagGroup('list, call, doctor', {
    json: flag.switch('As one JSON object.'),
  }),
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'tools',
  description:
    'list: opens all servers at once and shows what they offer. call: calls one tool, by its name or as server.tool, and shows ' +
    'its answer. doctor: finds out why a server does not start, step by step, and how much memory it needs. serve: offers an ' +
    'environment’s own tools to any MCP client, with a state of its own for each session.',
  arguments: [
    { name: 'action', required: true, help: 'an action: list, call, doctor or serve' },
    {
      name: 'config',
      required: true,
      help: 'a .json file with mcpServers, or an environment: its path or name, also as environment:<name>',
    },
    { name: 'tool', required: false, help: 'for call: the tool, or server.tool' },
    { name: 'arguments', required: false, help: 'for call: its arguments, as a JSON object' },
  ],
  flags: toolsFlags,
  prefixes: { env: { ...evalPrefixes.env, group: 'Environment' } },
  examples: {
    'millrace tools list servers.json': 'what the servers of a file offer',
    [`millrace tools call servers.json web.search '{"query": "tide"}'`]: 'one call, as JSON',
    'millrace tools call servers.json search --arg query=tide': 'the same, without quoting',
    'millrace tools doctor servers.json --server web': 'why it does not start',
    'millrace tools serve guess-number --http 3333': 'the tools of an example, over HTTP',
  },
  exitCodes: {
    ok: 'done; serve: its client has disconnected, or it was interrupted',
    failed: 'a required server did not open, or the tool failed',
    usage: 'the command line or the configuration is wrong, also of a server that is not required',
    interrupted: 'interrupted by Ctrl-C',
  },
  run: async (invocation, io) => (await import('./run-tools.ts')).runTools(invocation, io),
})
