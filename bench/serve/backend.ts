/**
 * The backend process: the simulator, which is told its reply time, and beside it a server with one canned reply of 150,000
 * tokens with log-probabilities and routed experts. Prints where they are.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { SimulatorServer } from '../../src/simulator/index.ts'

export interface ServeBackend {
  readonly url: string
  readonly hugeUrl: string
  readonly cpuUrl: string
  /** Where the simulator takes other settings. */
  readonly settingsUrl: string
}

const hugeTokens = 150_000
/** Layers times experts per token: about 60 MB of JSON for all tokens. */
const expertsPerToken = [36, 8] as const

const simulator = await SimulatorServer.start({ spread: 0.2 })
const body = hugeReply()
const server = createServer((request, response) => {
  if (request.url === '/cpu') {
    const { user, system } = process.cpuUsage()
    response.end(JSON.stringify((user + system) / 1000))
    return
  }
  request.resume()
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body)
})
server.listen(0, '127.0.0.1', () => {
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const urls: ServeBackend = {
    url: simulator.url,
    hugeUrl: `${origin}/v1`,
    cpuUrl: `${origin}/cpu`,
    settingsUrl: new URL('/sim/settings', simulator.url).href,
  }
  console.log(JSON.stringify(urls))
})
process.once('SIGTERM', () => process.exit(0))

function hugeReply(): Buffer {
  const [layers, perLayer] = expertsPerToken
  const ids = Array.from({ length: hugeTokens }, (_, index) => (index * 7919) % 151_936)
  const logprobs = ids.map((id) => `{"token":"t","logprob":${-(id % 9973) / 7919}}`)
  const experts = Buffer.from(
    Uint8Array.from({ length: hugeTokens * layers * perLayer }, (_, index) => (index * 31) % 128),
  )
  return Buffer.from(
    [
      '{"id":"huge","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop",',
      `"message":{"role":"assistant","content":"Answer: 1 ${'word '.repeat(hugeTokens)}"},`,
      `"token_ids":[${ids.join(',')}],"logprobs":{"content":[${logprobs.join(',')}]},`,
      `"routed_experts":{"dtype":"uint8","shape":[${hugeTokens},${layers},${perLayer}],"data":"${experts.toString('base64')}"}}],`,
      `"usage":{"prompt_tokens":100,"completion_tokens":${hugeTokens}}}`,
    ].join(''),
  )
}
