import type { Transport } from '@modelcontextprotocol/client'
import { expect, test } from 'vitest'
import { AbortSource } from '../../../kit/index.ts'
import { Connection } from './connection.ts'
import type { ServerLink } from '../transports/pending-calls.ts'

/** To a server that cannot be spoken to, and that cannot be ended either. */
function stuckLink(): ServerLink {
  const transport: Transport = {
    start: () => Promise.reject(new Error('it does not listen')),
    send: () => Promise.resolve(),
    close: () => Promise.resolve(),
  }
  return {
    transport,
    hasRequestPerCall: false,
    failure: undefined,
    ending: { stderr: 'as it ended' },
    sendCall: () => undefined,
    close: () => Promise.reject(new Error('it does not end')),
  }
}

test('if opening and closing both fail, the error names both, and the connection has not ended', async () => {
  const begun: Connection[] = []
  const ended: Connection[] = []
  const opening = Connection.open({
    server: 'stuck',
    config: { command: 'stuck' },
    link: () => Promise.resolve(stuckLink()),
    generation: 1,
    timeoutMs: 60_000,
    signal: new AbortSource().signal,
    onBegin: (connection) => begun.push(connection),
    onEnd: (connection) => ended.push(connection),
    onListChanged: () => {},
    onLost: () => {},
    failure: ({ error, ending, closeError }) => new Error(`${error} ${ending?.stderr} ${closeError}`),
  })
  await expect(opening).rejects.toThrow('Error: it does not listen as it ended Error: it does not end')
  expect(begun).toHaveLength(1)
  expect(ended).toEqual([])
  await expect(begun[0]?.close()).rejects.toThrow('it does not end')
})
