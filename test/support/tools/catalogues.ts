import type { RepairTarget } from '../../../src/tools/repair/call-repair.ts'

type Members = Readonly<Record<string, unknown>>

/** A tool on a server, all of whose parameters are required but those that end in "?". */
export function serverTool(server: string, tool: string, members: Members, name = tool): RepairTarget {
  return { name, server, serverToolName: tool, parameters: objectOf(members) }
}

/** A tool of the environment's own. */
export function ownTool(name: string, members: Members, more: Members = {}): RepairTarget {
  return { name, parameters: { ...objectOf(members), ...more } }
}

function objectOf(members: Members): RepairTarget['parameters'] {
  const entries = Object.entries(members).map(([name, schema]) => [name.replace(/\?$/, ''), schema] as const)
  const required = Object.keys(members).filter((name) => !name.endsWith('?'))
  return { type: 'object', properties: Object.fromEntries(entries), required }
}

const text = { type: 'string' }

/** The servers of MiroThinker's single agent, as far as its repairs know them. */
export const miroServers: readonly RepairTarget[] = [
  serverTool('tool-python', 'create_sandbox', {}),
  serverTool('tool-python', 'run_python_code', { code_block: text, sandbox_id: text }),
  serverTool('search_and_scrape_webpage', 'google_search', { q: text, 'gl?': text, 'num?': { type: 'integer' } }),
  serverTool('jina_scrape_llm_summary', 'scrape_and_extract_info', { url: text, info_to_extract: text }),
]

/** The same with a Python that keeps nothing, whose tool has the name that models give the other one. */
export const miroWithStatelessPython: readonly RepairTarget[] = [
  ...miroServers,
  serverTool('stateless_python', 'python', { code: text }),
]

/** Two servers that have a tool of one name each, told apart by a prefix. */
export const twoSearches: readonly RepairTarget[] = [
  serverTool('web', 'search', { query: text }, 'web_search'),
  serverTool('docs', 'search', { query: text }, 'docs_search'),
  serverTool('docs', 'fetch', { id: text }, 'docs_fetch'),
]

/** One tool of each kind of parameter, none of them on a server. */
export const ownTools: readonly RepairTarget[] = [
  ownTool('weather', {
    city: text,
    'unit?': { enum: ['celsius', 'Kelvin'] },
    'days?': { type: 'integer', minimum: 1 },
    'hourly?': { type: 'boolean' },
    'zip?': text,
    'threshold?': { type: 'number' },
    'note?': { type: ['string', 'null'] },
  }),
  ownTool(
    'tag',
    {
      names: { type: 'array', items: text },
      'ids?': { type: 'array', items: { type: 'integer' } },
      'options?': { type: 'object', properties: { depth: { type: 'integer' } }, required: ['depth'] },
      'limit?': { anyOf: [{ type: 'integer' }, { type: 'null' }] },
      'either?': { anyOf: [{ type: 'integer' }, { type: 'array', items: { type: 'integer' } }] },
      'place?': { $ref: '#/$defs/place' },
      'any?': {},
    },
    { $defs: { place: { type: 'object', properties: { lat: { type: 'number' } } } } },
  ),
  ownTool('strict', { a: text, 'constructor?': { type: 'integer' } }, { additionalProperties: false }),
  ownTool('now', {}),
  ownTool('save', { json: text, 'path?': text }),
]
