import { describe, expect, it } from 'vitest'
import { answerText } from './_answer-text.ts'

describe('answerText', () => {
  it('shows text, without what moves the cursor', () => {
    expect(answerText('a\nb\u001b[2J\u0007')).toBe('a\nb�')
  })

  it('describes what is not text', () => {
    const png = Buffer.alloc(3_000).toString('base64')
    const parts = [
      { type: 'text', text: 'two pictures' },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${png}` } },
      { type: 'image_url', image_url: { url: 'https://example.org/a.png' } },
      { type: 'other', api: 'chat', value: { kind: 'sound' } },
    ] as const
    expect(answerText(parts)).toBe(
      'two pictures\n[image image/png, 3.0 kB]\n[image at https://example.org/a.png]\n[{"kind":"sound"}]',
    )
  })
})
