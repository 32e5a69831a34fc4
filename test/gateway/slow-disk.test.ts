import { expect, test } from 'vitest'
import { OpenGateway } from '../../src/gateway/_testing/open-gateway.ts'

const chat = { model: 'sim', messages: [{ role: 'user', content: 'hello' }] }
const responses = { model: 'sim', input: 'hello' }

test('nobody who asks a model waits for the disk, whatever the request refers to and whoever spoke before', async () => {
  await using open = await OpenGateway.open({ models: [{ name: 'sim', simulator: {} }], bounds: { maxRemembered: 1 } })
  const { journal } = open.store
  const [one, other] = [await open.session(), await open.session()]
  const durable = journal.durable.bind(journal)
  journal.durable = () => Promise.reject(new Error('somebody waits for the disk'))
  try {
    const first = await open.ask(one.caller, responses, { api: 'responses' })
    const next = { ...responses, previous_response_id: first.document['id'] }
    const asked = [
      open.ask(one.caller, { ...chat, stream: true }),
      open.ask(one.caller, next, { api: 'responses' }),
      open.ask(one.caller, next, { api: 'responses', countsOnly: true }),
    ]
    for (const client of await Promise.all(asked)) expect(client).toMatchObject({ status: 200, isEnded: true })
    // Each makes the gateway forget the other, and what a session said is then read again.
    for (const { caller } of [other, one, other]) {
      expect(await open.ask(caller, chat)).toMatchObject({ status: 200, isEnded: true })
    }
  } finally {
    journal.durable = durable
  }
})
