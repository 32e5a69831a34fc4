import { expect, test } from 'vitest'
import { MillraceError, type ErrorCode } from '../../errors/index.ts'
import { chatServer } from '../chat/write-reply.ts'
import { messagesServer } from '../messages/write-reply.ts'
import { responsesServer } from '../responses/write-stream.ts'

const url = 'http://10.1.2.3:8000/v1/chat/completions'
const servers = [chatServer, responsesServer, messagesServer]

/** An error as the model layer makes them: it names the backend. */
function fromBackend(code: ErrorCode, data: Readonly<Record<string, string | number>> = {}): MillraceError {
  return new MillraceError(code, `${url} went wrong`, { data: { backend: '10.1.2.3:8000', ...data } })
}

test.for([
  ['model_connect', { cause: 'ECONNREFUSED' }, 502],
  ['model_rejected', { cause: 'CERT_HAS_EXPIRED' }, 502],
  ['model_rejected', {}, 400],
  ['model_timeout', {}, 504],
  ['model_truncated', {}, 502],
  ['model_malformed', {}, 502],
  ['model_server_error', { status: 500, said: `${url} has no memory left`, saidType: '10.1.2.3' }, 500],
  ['model_server_error', { status: 424 }, 500],
  ['model_rate_limited', { status: 429 }, 429],
  ['closed', {}, 503],
] as const)('an error reply does not disclose the address of the backend: %s %o', ([code, data, status]) => {
  for (const server of servers) {
    const error = server.error(fromBackend(code, data))
    expect(JSON.stringify(error), server.api).not.toMatch(/10\.1\.2\.3/)
    expect(error.status).toBe(status)
    expect(JSON.stringify(server.streamError(fromBackend(code, data)))).not.toMatch(/10\.1\.2\.3/)
  }
})

test.for([401, 402, 403])('status %i of a backend is not reported as a fault of the client key', (status) => {
  const code = status === 402 ? 'model_rejected' : 'model_auth'
  const said = { said: 'Incorrect API key provided: sk-abc***xyz', saidType: 'authentication_error' }
  for (const server of servers) {
    const error = server.error(fromBackend(code, { status, ...said, saidCode: 'invalid_api_key' }))
    expect(error.status).toBe(502)
    const shown = JSON.stringify(error.body)
    expect(shown).not.toMatch(/sk-abc|authentication_error|invalid_api_key|invalid_value/)
    expect(shown).toMatch(/Your own key is valid/)
  }
  expect(messagesServer.error(fromBackend(code, { status })).body).toMatchObject({ error: { type: 'api_error' } })
})

test('a redirect by a backend is reported as 502, not as a fault of the request', () => {
  for (const server of servers) {
    expect(server.error(fromBackend('model_rejected', { status: 302, said: 'Found' })).status).toBe(502)
  }
})

test('a client with an unknown key of our own gets 401', () => {
  const error = new MillraceError('model_auth', 'this key is not known')
  expect(chatServer.error(error)).toMatchObject({ status: 401, body: { error: { code: 'invalid_api_key' } } })
})

test.for([
  ['model_rejected', 400],
  ['model_not_found', 404],
  ['model_rejected', 413],
  ['context_length', 422],
  ['model_rate_limited', 429],
] as const)('a fault of the request is reported in the words of the backend: %s, %i', ([code, status]) => {
  for (const server of servers) {
    const error = server.error(fromBackend(code, { status, said: 'top_k must be positive' }))
    expect(error.status).toBe(status)
    expect(JSON.stringify(error.body)).toContain('top_k must be positive')
  }
})

test.for(['disk_full', 'store_failed'] as const)('an error reply does not disclose the run folder: %s', (code) => {
  const error = new MillraceError(code, 'no space left for the run in /data/runs/gateway; run the same again')
  for (const server of servers) {
    expect(server.error(error).status).toBe(503)
    for (const shown of [server.error(error), server.streamError(error)]) {
      expect(JSON.stringify(shown)).not.toMatch(/\/data|run the same again/)
      expect(JSON.stringify(shown)).toMatch(/tell its operator/)
    }
  }
})
