import type { ModelRequest } from '../../../src/apis/backend.ts'

/** A request that asks for nothing in particular. */
export const plainRequest: ModelRequest = {
  messages: [{ role: 'user', content: 'hi' }],
  tools: [],
  sampling: {},
  captureTokens: false,
  sessionId: 's',
}
