import { expect, test } from 'vitest'
import { emptyUsage } from '../../schema/index.ts'
import { questionDigest } from './judge.ts'
import { VerdictReader, verdictOf, type RecordedVerdict } from '../recording/recording.ts'

const messages = [{ role: 'user' as const, content: 'Is it good?' }]

function verdict(request: string, content: string): RecordedVerdict {
  return { request, model: 'judge', reply: { role: 'assistant', content }, usage: emptyUsage(), cost: 0 }
}

test('the digest of a question covers its judge, its messages and its sampling', () => {
  const digest = questionDigest('judge', { messages })
  expect(questionDigest('judge', { messages: [...messages] })).toBe(digest)
  const others = [
    questionDigest('other', { messages }),
    questionDigest('judge', { messages: [...messages, ...messages] }),
    questionDigest('judge', { messages, temperature: 0 }),
    questionDigest('judge', { messages, maxTokens: 5 }),
  ]
  expect(new Set([digest, ...others]).size).toBe(5)
})

test('equal questions get their verdicts in order, each once, or the last one repeated', () => {
  const verdicts = [verdict('a', 'first'), verdict('b', 'other'), verdict('a', 'second')]
  const open = new VerdictReader(verdicts, undefined)
  const taken = ['a', 'a', 'b', 'a'].map((question) => open.take(question)?.reply.content)
  expect(taken).toEqual(['first', 'second', 'other', undefined])
  const repeating = new VerdictReader(verdicts, undefined, { repeats: true })
  const repeated = ['a', 'a', 'a', 'b', 'b', 'c'].map((question) => repeating.take(question)?.reply.content)
  expect(repeated).toEqual(['first', 'second', 'second', 'other', 'other', undefined])
  const closed = new VerdictReader([], { code: 'replay_diverged', message: 'never asked' })
  expect(() => closed.take('a')).toThrow('never asked')
})

test('a verdict recorded without its question is ignored', () => {
  const recorded = verdict('a', 'good')
  expect(verdictOf(JSON.parse(JSON.stringify(recorded)))).toEqual(recorded)
  const { request: _request, ...older } = recorded
  expect(verdictOf(JSON.parse(JSON.stringify(older)))).toBeUndefined()
})
