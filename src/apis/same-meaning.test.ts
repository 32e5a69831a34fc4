import { expect, test } from 'vitest'
import type { BackendReply } from './backend.ts'
import { chatServer } from './chat/write-reply.ts'
import { messagesServer } from './messages/write-reply.ts'
import { headOf } from '../../test/support/apis/reply-server.ts'
import { RandomConversation } from '../../test/support/apis/random-conversation.ts'
import { chatBody, messagesBody } from '../../test/support/apis/written-bodies.ts'

const seeds = Array.from({ length: 500 }, (_, seed) => seed)

test('a conversation is read into the same messages, and the same JSON, from each API', () => {
  for (const seed of seeds) {
    const messages = new RandomConversation(seed).messages()
    const expected = JSON.stringify(messages)
    for (const [dialect, written] of [
      [chatServer, chatBody(messages)],
      [messagesServer, messagesBody(messages)],
    ] as const) {
      const request = dialect.read(JSON.parse(JSON.stringify(written)))
      expect(JSON.stringify(request.messages), `${dialect.api}, seed ${seed}`).toBe(expected)
      expect(request.unsupported).toEqual([])
    }
  }
})

test('a reply sent back by a client is read as the original message', () => {
  for (const seed of seeds) {
    const { reply, echo } = echoed(seed)
    expect(JSON.stringify(echo.chat), `seed ${seed}`).toBe(JSON.stringify(reply.message))
    // A refusal is a text to a client of Messages, which can send it back only as one.
    const { refusal, ...said } = reply.message
    const shown = refusal === undefined ? said : { ...said, content: (said.content ?? '') + refusal }
    expect(JSON.stringify(echo.messages), `seed ${seed}`).toBe(JSON.stringify(shown))
  }
})

function echoed(seed: number): { reply: BackendReply; echo: { chat: unknown; messages: unknown } } {
  const reply = new RandomConversation(seed).reply()
  const question = { role: 'user', content: 'go' }
  const chat = chatServer.read({ model: 'm', messages: [question] })
  const completion = JSON.parse(JSON.stringify(chatServer.whole(headOf(chatServer, chat), reply)))
  const messages = messagesServer.read({ model: 'm', max_tokens: 1, messages: [question] })
  const { role, content } = JSON.parse(JSON.stringify(messagesServer.whole(headOf(messagesServer, messages), reply)))
  return {
    reply,
    echo: {
      chat: chatServer.read({ model: 'm', messages: [completion.choices[0].message] }).messages[0],
      messages: messagesServer.read({ model: 'm', max_tokens: 1, messages: [{ role, content }] }).messages[0],
    },
  }
}
