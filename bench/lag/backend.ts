/**
 * The backend of the lag benchmark: answers every request, after a while, with bytes that were made before. Every tenth
 * session gets routed experts too. Prints its URL, ends on SIGTERM.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { seededRandom } from '../../src/kit/index.ts'

export interface LagBackendInput {
  readonly tokens: number
  /** Layers and experts per token. */
  readonly mixture: readonly [number, number]
  readonly delayMs: number
}

const { tokens, mixture, delayMs } = JSON.parse(process.argv[2] ?? '{}') as LagBackendInput
const random = seededRandom(1)
const pieces = ['the', ' of', 'ing', ' and', '\n', ' é', ' a', '"', ' mill', 'race', '漢']

const plain = Array.from({ length: 8 }, () => reply(false))
const mixed = Array.from({ length: 2 }, () => reply(true))

const server = createServer((request, response) => {
  const isMixed = Number.parseInt(String(request.headers['x-session-id']), 10) % 10 === 0
  const replies = isMixed ? mixed : plain
  const body = replies[Math.floor(random() * replies.length)] as Buffer
  request.resume()
  request.once('end', () => {
    // A fifth more or less, so that rollouts that began together end close together, and not in step.
    setTimeout(
      () => {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length })
        response.end(body)
      },
      delayMs * (0.8 + 0.4 * random()),
    )
  })
})
server.keepAliveTimeout = 600_000
server.listen({ host: '127.0.0.1', port: 0, backlog: 4_096 }, () => {
  const { port } = server.address() as AddressInfo
  console.log(JSON.stringify({ url: `http://127.0.0.1:${port}/v1`, replyBytes: plain[0]?.length ?? 0 }))
})
process.once('SIGTERM', () => process.exit(0))

/** As vLLM writes it. The text is short: the tokens were a thought, and are not sent back with every turn. */
function reply(hasExperts: boolean): Buffer {
  const [layers, perToken] = mixture
  const content = Array.from({ length: tokens }, () => {
    const token = pieces[Math.floor(random() * pieces.length)] ?? ''
    const logprob = Math.fround(-(random() ** 4) * 4)
    return { token, logprob, bytes: [...Buffer.from(token)], top_logprobs: [] }
  })
  const choice = {
    index: 0,
    message: {
      role: 'assistant',
      content: 'Some words that the model says. '.repeat(12),
      refusal: null,
      tool_calls: [],
    },
    logprobs: { content },
    finish_reason: 'stop',
    token_ids: content.map(() => Math.floor(random() * 150_000)),
    ...(hasExperts && {
      routed_experts: content.map(() =>
        Array.from({ length: layers }, () => Array.from({ length: perToken }, () => Math.floor(random() * 128))),
      ),
    }),
  }
  const usage = { prompt_tokens: 100, completion_tokens: tokens, total_tokens: 100 + tokens }
  return Buffer.from(JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion', choices: [choice], usage }))
}
