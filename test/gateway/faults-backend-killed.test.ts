import { once } from 'node:events'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { checkError, checkStream } from '../support/gateway/stream-events.ts'
import { Talk } from '../support/gateway/scripted-conversation.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import { samplesOf } from '../support/gateway/emitted-tokens.ts'
import { apiClients, apiNames } from '../support/gateway/api-clients.ts'
import { startMillrace } from '../support/cli/millrace-process.ts'

test(
  'a backend killed during its replies leaves errors and lost samples, and no complete reply',
  { timeout: 60_000 },
  async () => {
    await using runs = await temporaryRuns()
    const words = ['--tokensPerSecond', '10', '--reasoning', '--port', '0']
    await using backend = startMillrace({ cwd: runs.root }, 'sim', ...words)
    await backend.shows('stdout', '/v1')
    const [url = ''] = /http:\S+/.exec(backend.stdout()) ?? []
    await using gateway = await TestGateway.start({
      models: apiNames.map((api) => ({ name: api, api, backends: [{ url }], maxTries: 1 })),
    })
    const session = await gateway.startSession()
    const cases = apiNames.flatMap((api) =>
      apiNames.flatMap((upstream) => [true, false].map((stream) => ({ api, upstream, stream }))),
    )
    let begun = 0
    const answers = cases.map(async ({ api, upstream, stream }, index) => {
      const talk = new Talk(gateway, session, apiClients[api], { model: upstream })
      talk.user(`What is the answer to question ${index}?`)
      const { statusCode, body } = await talk.send({ stream })
      let text = ''
      for await (const piece of body.setEncoding('utf8') as AsyncIterable<string>) {
        if (stream && !text.includes('Let') && (text + piece).includes('Let')) begun += 1
        text += piece
      }
      return { api, upstream, stream, statusCode, text }
    })
    await expect.poll(() => begun).toBe(cases.length / 2)
    backend.process.kill('SIGKILL')
    await once(backend.process, 'exit')

    for (const { api, upstream, stream, statusCode, text } of await Promise.all(answers)) {
      if (stream) expect(checkStream(api, text, api === upstream), text).toBe('error')
      else checkError(api, statusCode, text)
    }
    const { body: ended } = await gateway.ask(`/v1/sessions/${session.id}/end`, { method: 'POST' })
    expect(ended).toMatchObject({ interactions: 0, discarded: cases.length / 2 })
    const rows = await samplesOf(gateway, session.id)
    expect(rows.map(({ discarded }) => discarded)).toEqual(rows.map(() => 'truncated'))
  },
)
