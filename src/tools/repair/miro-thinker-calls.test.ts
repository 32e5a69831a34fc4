import { describe, expect, test } from 'vitest'
import { miroServers, miroWithStatelessPython, twoSearches } from '../../../test/support/tools/catalogues.ts'
import { describeCalls, repaired, unknown, untouched, written } from '../../../test/support/tools/sloppy-call.ts'
import { createRepairer } from './repairer.ts'
import { miroThinkerRepairs } from './repair-rules.ts'

describeCalls('R1 to R9', { tools: miroServers, rules: miroThinkerRepairs }, [
  [
    'R1: `python` is called, `run_python_code` is meant',
    ['tool-python', 'python', '{"code_block":"1","sandbox_id":"sbx-1"}'],
    repaired('run_python_code', { code_block: '1', sandbox_id: 'sbx-1' }, 'tool_alias'),
  ],
  [
    'R1: `python_code`, natively',
    ['python_code', '{"code_block":"1","sandbox_id":"sbx-1"}'],
    repaired('run_python_code', { code_block: '1', sandbox_id: 'sbx-1' }, 'tool_alias'),
  ],
  [
    'R1: an alias on the wrong server is routed as well',
    ['python', 'python', '{"code_block":"1","sandbox_id":"sbx-1"}'],
    repaired('run_python_code', { code_block: '1', sandbox_id: 'sbx-1' }, 'tool_alias', 'server_route'),
  ],
  [
    'R1: `python` is a tool of the server that the call names: no alias',
    ['stateless_python', 'python', '{"code":"1"}'],
    untouched({ code: '1' }),
    { tools: miroWithStatelessPython },
  ],
  [
    'R1: `python` is a tool, and the call names no server: no alias',
    ['python', '{"code":"1"}'],
    untouched({ code: '1' }),
    { tools: miroWithStatelessPython },
  ],
  [
    'R1: another server defines `python`, but the named one has only what the alias stands for',
    ['tool-python', 'python', '{"code_block":"1","sandbox_id":"sbx-1"}'],
    repaired('run_python_code', { code_block: '1', sandbox_id: 'sbx-1' }, 'tool_alias'),
    { tools: miroWithStatelessPython },
  ],
  [
    'R1: `python` on a server that does not exist goes to the one tool that is called so',
    ['pyserver', 'python', '{"code":"1"}'],
    repaired('python', { code: '1' }, 'server_route'),
    { tools: miroWithStatelessPython },
  ],
  [
    'R1: what the alias stands for is not there: a plain error',
    ['python', '{"code":"1"}'],
    unknown('there is no tool named "python".', 'Tools: web_search, docs_search, docs_fetch.'),
    { tools: twoSearches },
  ],
  [
    'R2: the right tool on the wrong server',
    ['tool-python', 'google_search', '{"q":"cats"}'],
    repaired('google_search', { q: 'cats' }, 'server_route'),
  ],
  [
    'R2: for every tool, not for three of them',
    ['search_and_scrape_webpage', 'create_sandbox', '{}'],
    repaired('create_sandbox', {}, 'server_route'),
  ],
  [
    'R3: `description` for `info_to_extract`',
    ['jina_scrape_llm_summary', 'scrape_and_extract_info', '{"url":"https://a.b","description":"prices"}'],
    repaired('scrape_and_extract_info', { url: 'https://a.b', info_to_extract: 'prices' }, 'rename'),
  ],
  [
    'R3: `introduction`, where there is no `description`',
    ['scrape_and_extract_info', '{"url":"https://a.b","introduction":"prices"}'],
    repaired('scrape_and_extract_info', { url: 'https://a.b', info_to_extract: 'prices' }, 'rename'),
  ],
  [
    'R3: both: the first is taken, the other stays',
    ['scrape_and_extract_info', '{"url":"https://a.b","introduction":"i","description":"d"}'],
    repaired('scrape_and_extract_info', { url: 'https://a.b', introduction: 'i', info_to_extract: 'd' }, 'rename'),
  ],
  [
    'R3: never over what is there',
    ['scrape_and_extract_info', '{"url":"https://a.b","description":"d","info_to_extract":"real"}'],
    untouched({ url: 'https://a.b', description: 'd', info_to_extract: 'real' }),
  ],
  [
    'R3: nor over what is there and does not fit',
    ['scrape_and_extract_info', '{"url":"https://a.b","description":"d","info_to_extract":5}'],
    repaired('scrape_and_extract_info', { url: 'https://a.b', description: 'd', info_to_extract: '5' }, 'coerce'),
  ],
  [
    'R3: a null where the name is due is not there',
    ['scrape_and_extract_info', '{"url":"https://a.b","description":"d","info_to_extract":null}'],
    repaired('scrape_and_extract_info', { url: 'https://a.b', info_to_extract: 'd' }, 'drop_nulls', 'rename'),
  ],
  [
    'R4: `code` for `code_block`',
    ['tool-python', 'run_python_code', '{"code":"print(1)","sandbox_id":"sbx-1"}'],
    repaired('run_python_code', { code_block: 'print(1)', sandbox_id: 'sbx-1' }, 'rename'),
  ],
  [
    'R5: no sandbox',
    ['tool-python', 'run_python_code', '{"code_block":"1"}'],
    repaired('run_python_code', { code_block: '1', sandbox_id: 'default' }, 'default'),
  ],
  [
    'R1, R4 and R5 in one call',
    ['tool-python', 'python', '{"code":"1"}'],
    repaired('run_python_code', { code_block: '1', sandbox_id: 'default' }, 'tool_alias', 'rename', 'default'),
  ],
  [
    'R6: a made-up sandbox: the code goes to the Python that needs none',
    ['tool-python', 'run_python_code', '{"code_block":"1","sandbox_id":"Default"}'],
    repaired('python', { code: '1' }, 'value_fallback', 'rename'),
    { tools: miroWithStatelessPython },
  ],
  [
    'R6: an empty id, and R5 before it',
    ['tool-python', 'run_python_code', '{"code_block":"1"}'],
    repaired('python', { code: '1' }, 'default', 'value_fallback', 'rename'),
    { tools: miroWithStatelessPython },
  ],
  [
    'R6: a number for an id',
    ['tool-python', 'run_python_code', '{"code_block":"1","sandbox_id":0}'],
    repaired('python', { code: '1' }, 'coerce', 'value_fallback', 'rename'),
    { tools: miroWithStatelessPython },
  ],
  [
    'R6: nothing to fall back on: the server sees to it',
    ['tool-python', 'run_python_code', '{"code_block":"1","sandbox_id":"default"}'],
    untouched({ code_block: '1', sandbox_id: 'default' }),
  ],
  [
    'R6: a real id',
    ['tool-python', 'run_python_code', '{"code_block":"1","sandbox_id":"i4r2x9"}'],
    untouched({ code_block: '1', sandbox_id: 'i4r2x9' }),
    { tools: miroWithStatelessPython },
  ],
  [
    'R7: a reader put before the address',
    ['scrape_and_extract_info', '{"url":"https://r.jina.ai/https://a.b/c","info_to_extract":"x"}'],
    repaired('scrape_and_extract_info', { url: 'https://a.b/c', info_to_extract: 'x' }, 'value_rewrite'),
  ],
  [
    'R7: the reader itself is asked for',
    ['scrape_and_extract_info', '{"url":"https://r.jina.ai/docs?of=http://a.b","info_to_extract":"x"}'],
    untouched({ url: 'https://r.jina.ai/docs?of=http://a.b', info_to_extract: 'x' }),
  ],
  [
    'R8: quotes in a query stay until nothing was found (see below)',
    ['google_search', String.raw`{"q":"\"exact words\""}`],
    untouched({ q: '"exact words"' }),
  ],
  [
    'R9: a server that does not exist, one owner',
    ['search', 'google_search', '{"q":"cats"}'],
    repaired('google_search', { q: 'cats' }, 'server_route'),
  ],
  [
    'R9: a server that does not exist, two owners',
    ['search', 'search', '{"query":"cats"}'],
    unknown(
      'Error: server "search" has no tool named "search", but several are called so: ' +
        'search (server "web"), search (server "docs"). Call one of these.',
    ),
    { tools: twoSearches },
  ],
])

test('two calls, one right and one wrong: only the wrong one is changed', () => {
  const repairer = createRepairer(miroThinkerRepairs, miroServers)
  const right = repairer.repair(written(['search_and_scrape_webpage', 'google_search', '{"q":"a"}']))
  const wrong = repairer.repair(written(['tool-python', 'google_search', '{"q":"b"}']))
  expect(right).toEqual({ kind: 'call', name: 'google_search', arguments: { q: 'a' }, repairs: [] })
  expect(wrong).toEqual({
    kind: 'call',
    name: 'google_search',
    arguments: { q: 'b' },
    repairs: [
      {
        rule: 'server_route',
        before: { server: 'tool-python', tool: 'google_search' },
        after: { server: 'search_and_scrape_webpage', tool: 'google_search' },
      },
    ],
  })
})

describe('R8: a search without results is repeated once without its quotes', () => {
  const repairer = createRepairer(miroThinkerRepairs, miroServers)
  const args = { q: '"exact words" cats', gl: 'us' }
  const nothing = '{"searchParameters":{},"organic":[]}'

  test('the retry has no quotes', () => {
    expect(repairer.retryAfter('google_search', args, nothing)).toEqual({
      arguments: { q: 'exact words cats', gl: 'us' },
      repair: { rule: 'retry_without', at: 'q', before: '"exact words" cats', after: 'exact words cats' },
    })
  })

  test('a query without quotes is not retried', () => {
    expect(repairer.retryAfter('google_search', { q: 'exact words cats' }, nothing)).toBeUndefined()
  })

  test.each([
    ['it found something', 'google_search', args, '{"organic":[{"title":"Cats"}]}'],
    ['it failed', 'google_search', args, 'Error: no answer'],
    ['the result says nothing about what was found', 'google_search', args, '{"error":"quota"}'],
    ['nothing would be left of the query', 'google_search', { q: '""' }, nothing],
    ['the query is no text', 'google_search', { q: 7 }, nothing],
    ['it was another tool', 'create_sandbox', args, nothing],
    ['there is no such tool', 'sogou_search', args, nothing],
  ])('there is no retry if %s', (_why, name, given, result) => {
    expect(repairer.retryAfter(name, given, result)).toBeUndefined()
  })
})
