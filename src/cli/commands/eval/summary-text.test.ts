import { timeoutError } from '../../../rollout/agent/budget.ts'
import { describe, expect, it } from 'vitest'
import { sampleSummary } from '../../../../test/support/cli/fake-evaluation.ts'
import { createStyle, textWidth } from '../../terminal/text.ts'
import { summaryText } from './summary-text.ts'

const frame = { columns: 80, style: createStyle(false), program: 'npx millrace', run: 'brisk-otter' }

describe('summaryText', () => {
  it('shows the score with its interval and every denominator', () => {
    const text = summaryText(sampleSummary(), frame)
    for (const part of [
      'arithmetic · sim',
      'complete · 12.4s',
      '0.812 [0.778, 0.847]   95% interval, clustered by task',
      '300 of 300 rollouts scored · 75 tasks',
      'pass: a reward of at least 1 ─',
      '75 of 75 tasks with all 4 attempts scored',
      '1.23M in (32.4% cached) · 210k out',
      '600 · 12 retries after a failure',
      '$0.4212',
      '24.2 rollouts/s',
      'folder  runs/brisk-otter',
      'millrace show brisk-otter',
    ]) {
      expect(text).toContain(part)
    }
    expect(text).toMatch(/pass@k +0\.812 +0\.911 +0\.967/)
    expect(text).toMatch(/pass\^k +0\.812 +0\.702 +0\.551/)
    expect(text).toMatch(/completed +296 +98\.7% +scored/)
    expect(text).toMatch(/max_turns +4 +1\.3% +scored, truncated/)
    expect(text).toMatch(/all others +0/)
    expect(text).toMatch(/wall +model +tools +reward +wait/)
    expect(text).toMatch(/p95 +2\.3s +1\.8s +9\.0ms +0\.4ms +400ms/)
  })

  it.each([
    ['as it is', sampleSummary()],
    [
      'with everything long',
      sampleSummary({
        environment: 'an-environment-with-a-name-that-goes-on-and-on-and-on',
        model: 'organisation/a-model-with-a-name-that-goes-on-and-on-and-on-and-on',
        attemptsPerTask: 4096,
        tasks: 12_345_678,
        rollouts: 987_654_321,
        voided: 1234,
        pass: Array.from({ length: 13 }, (_, power) => ({ k: 2 ** power, atK: 0.5, hatK: 0.1, tasks: 12_000_000 })),
        components: Object.fromEntries(
          Array.from({ length: 30 }, (_, index) => [
            `component-with-a-long-name-${index}`,
            { mean: 123_456, rollouts: 987_654_321, weight: 0.25 },
          ]),
        ),
        judgeUsage: { calls: 9, input: 1e9, cachedInput: 1e8, output: 1e9, reasoning: 1e8 },
        cost: 12_345.678,
      }),
    ],
    ['of nothing', sampleSummary({ rollouts: 0, scored: 0, tasks: 0, score: undefined, pass: [], cost: null })],
  ])('has no line longer than 80 columns %s', (_, summary) => {
    for (const columns of [40, 48, 62, 80, 200]) {
      const lines = summaryText(summary, {
        columns,
        style: createStyle(true),
        program: 'npx millrace',
        run: 'brisk-otter',
      }).split('\n')
      const box = lines.filter((line) => /[│─]/.test(line))
      expect(new Set(box.map(textWidth))).toEqual(new Set([Math.min(80, columns)]))
    }
    expect(summaryText(summary, frame)).not.toMatch(/NaN|undefined|Infinity/)
  })

  it('keeps its right edge and every word with wide characters', () => {
    const reason = '连接被拒绝：后端没有在规定的时间内回答，请检查地址和密钥是否正确，然后再试一次✅'
    const summary = sampleSummary({
      environment: '算术题🧮',
      model: 'モデル',
      components: {
        正确性: { mean: 0.5, rollouts: 300, weight: 1 },
        '速度⚡️': { mean: 0.5, rollouts: 300, weight: 0.5 },
      },
      outcomes: { ...sampleSummary().outcomes, model_error: 4 },
      reasons: { model_error: reason },
    })
    const text = summaryText(summary, { ...frame, columns: 60 })
    expect(text).toContain('─ 算术题🧮 · モデル ─')
    expect(text).toContain('│ 正确性                        0.500        1      300    │')
    expect(text).toContain('│ 速度⚡️                        0.500      0.5      300    │')
    const why = text.slice(text.indexOf('model_error, the first'), text.indexOf('├─ time'))
    expect(why.replaceAll(/[│\s]/g, '')).toContain(reason)
  })

  it('reports that all calls succeeded at the first try only if all of them are known', () => {
    const { calls } = sampleSummary().usage
    const shown = (made: number) => summaryText(sampleSummary({ tries: { calls: made, tries: made } }), frame)
    expect(shown(calls)).toMatch(/calls +600, all at the first try/)
    expect(shown(calls - 1)).toMatch(/calls +600 +│/)
  })

  it('does not mix calls of discarded attempts with those of accepted ones', () => {
    const { usage, discarded, unfinished } = sampleSummary()
    const spent = { ...discarded, attempts: 1, usage: { ...usage, calls: 7 } }
    const made = usage.calls + 7
    const shown = (summary: Parameters<typeof sampleSummary>[0]) => summaryText(sampleSummary(summary), frame)
    expect(shown({ tries: { calls: made - 1, tries: made - 1 }, discarded: spent })).toMatch(/calls +600 +│/)
    expect(shown({ tries: { calls: made, tries: made }, discarded: spent })).toMatch(/calls +600, all at the first try/)
    const open = { ...unfinished, ...spent }
    expect(shown({ tries: { calls: made - 1, tries: made - 1 }, unfinished: open })).toMatch(/calls +600 +│/)
  })

  it('does not report members of a voided group as scored', () => {
    const text = summaryText(sampleSummary({ scored: 296, voided: 4 }), frame)
    expect(text).toContain('296 of 300 rollouts scored · 75 tasks · 4 voided')
    expect(text).toMatch(/completed +296 +98\.7% +scored unless voided/)
    expect(text).toMatch(/max_turns +4 +1\.3% +scored unless voided, truncated/)
  })

  it('names the most important failure first', () => {
    const summary = sampleSummary({ scored: 298, outcomes: { ...sampleSummary().outcomes, model_error: 2 } })
    const text = summaryText(summary, frame)
    expect(text).toContain('298 of 300 rollouts scored')
    expect(text).toMatch(/model_error +2 +0\.7% +not scored/)
    expect(text).toContain('next    npx millrace show brisk-otter --outcome model_error')
  })

  it('suggests no next step if no rollout has ended', () => {
    expect(summaryText(sampleSummary({ rollouts: 0, scored: 0, tasks: 0 }), frame)).not.toContain('next')
  })

  it('shows why rollouts have no score, with the first reason of each outcome', () => {
    const summary = sampleSummary({
      outcomes: { ...sampleSummary().outcomes, model_error: 2, env_error: 1 },
      reasons: { model_error: `the backend answered 500: ${'<p>oops</p> '.repeat(40)}`, env_error: 'no such image' },
    })
    const text = summaryText(summary, frame)
    expect(text).toMatch(/├─ why ─/)
    expect(text).toMatch(
      /│ model_error, the first of them +│\n│ {3}the backend answered 500: <p>.*│\n(│ {3}.*<p>.*│\n){2}│ .*…  │/,
    )
    expect(text).toMatch(/│ env_error +│\n│ {3}no such image +│/)
  })

  it('keeps the lines of a traceback, including the last one', () => {
    const traceback = [
      'Traceback (most recent call last):',
      '  File "score.py", line 7',
      '    main()',
      '  File "score.py", line 4',
    ]
    const reason = `python3 ended with code 1; stderr ended with: ${[...traceback, '    read()', 'KeyError: 1'].join('\n')}`
    const summary = sampleSummary({
      outcomes: { ...sampleSummary().outcomes, reward_error: 1 },
      reasons: { reward_error: reason },
    })
    expect(summaryText(summary, frame)).toMatch(/Traceback.*\n│.*\n│ {3}… +│\n│ {3}KeyError: 1 +│/)
  })

  it('shows the advice of a reason in full', () => {
    const lastSent = {
      backend: 'inference.internal.example.org:8000',
      sentAt: 0,
      isSilent: true,
      isUnderWay: true,
    }
    const { rawMessage } = timeoutError('time', {
      lastSent,
      doing: undefined,
      waitsForModel: false,
      waitsBecauseOf: undefined,
    })
    const summary = sampleSummary({
      outcomes: { ...sampleSummary().outcomes, infra_timeout: 1 },
      reasons: { infra_timeout: rawMessage },
    })
    const args = summaryText(summary, frame).replaceAll(/[│\s]+/g, ' ')
    expect(args).toContain(rawMessage)
  })

  it('names the errors of tools, the first of each kind', () => {
    const fault = (tool: string) => ({
      tool,
      kind: 'TypeError at shop.ts:41',
      message: 'no\u001b[31m list',
      calls: 1_200,
    })
    const toolFaults = ['buy', 'sell', 'find', 'pay', 'ship'].map(fault)
    const text = summaryText(sampleSummary({ tools: { calls: 9_000, failed: 6_000 }, toolFaults }), frame)
    expect(text).toMatch(
      /│ tools +9,000 calls · 6,000 failed +│\n│ +buy threw TypeError at shop\.ts:41 1,200 times: no/,
    )
    expect(text).toMatch(/│ +find threw .*│\n│ +and 2 more kinds: see --json +│/)
    expect(text).not.toContain('\u001b[31m')
  })

  it('names missing tool servers, up to a limit', () => {
    const missing = (server: string) => ({ server, rollouts: 40, cause: `exited\nwith 3 ${'at line 1 '.repeat(90)}` })
    const text = summaryText(sampleSummary({ missingServers: ['a', 'b', 'c', 'd', 'e'].map(missing) }), frame)
    const notices = text.split('\n').filter((line) => line.startsWith('  notice'))
    expect(notices).toHaveLength(4)
    expect(notices[0]).toMatch(/^ {2}notice {2}tool server a was missing in 40 of 300 rollouts: exited with 3 at/)
    expect(notices[0]?.length).toBeLessThan(300)
    expect(notices[3]).toBe('  notice  2 more tool servers were missing: see --json')
    expect(summaryText(sampleSummary(), frame)).not.toContain('notice')
  })

  it('truncates no number in a narrow terminal', () => {
    const text = summaryText(sampleSummary(), { ...frame, columns: 44 })
    for (const part of [
      /wall +1\.2s +2\.3s/,
      /wait +130ms +400ms/,
      /completed +296 +98\.7%/,
      /0\.812 +0\.911 +0\.967/,
    ]) {
      expect(text).toMatch(part)
    }
    expect(text).toMatch(/over +75 of 75 tasks with all 4 +│\n│ +attempts scored/)
    expect(text).not.toContain('…')
  })

  it.each([
    [null, 0, /cost +unknown: no price is known for sim/],
    [1.2, 3, /cost +\$1\.20 \+ 3 rollouts of unknown price/],
    [1.2, 0, /cost +\$1\.20 +│/],
  ])('shows the unknown part of the cost: %j, %i unknown', (cost, costUnknown, expected) => {
    expect(summaryText(sampleSummary({ cost, costUnknown }), frame)).toMatch(expected)
  })

  it('names the judge models beside their tokens', () => {
    const judgeUsage = { calls: 3, input: 100, cachedInput: 0, output: 20, reasoning: 0 }
    const text = summaryText(sampleSummary({ judgeUsage, judgeModels: ['gpt-5-mini', 'judge\u001b[31m'] }), frame)
    expect(text).toMatch(/│ judge +gpt-5-mini, judge · 100 in · 20 out +│/)
  })

  it('names no model without a price if several models were used', () => {
    const judgeUsage = { calls: 3, input: 100, cachedInput: 0, output: 20, reasoning: 0 }
    const text = summaryText(sampleSummary({ cost: null, costUnknown: 300, judgeUsage }), frame)
    expect(text).toMatch(/cost +unknown: a model in use has no known price +│/)
  })

  it.each([
    [0, 2, /open +2 attempts not ended yet: .* out · cost unknown +│/],
    [1.2, 1, /open +2 attempts not ended yet: .* out · \$1\.20 \+ 1 attempt of +│\n│ +unknown price +│/],
    [0, 0, /open +2 attempts not ended yet: .* out · \$0 +│/],
  ])('shows the unknown cost of attempts: %j, %i unknown', (costUsd, costUnknown, expected) => {
    const usage = { calls: 4, input: 100, cachedInput: 0, output: 20, reasoning: 0 }
    const unfinished = { attempts: 2, waitForGroup: 0, usage, costUsd, costUnknown }
    expect(summaryText(sampleSummary({ unfinished }), frame)).toMatch(expected)
  })

  it.each([
    [1, /open +2 attempts not ended yet \(1 only waiting for the group\): /],
    [2, /open +2 attempts waiting for the rest of the group: /],
  ])('counts the open attempts that wait for their group: %i of 2', (waitForGroup, expected) => {
    const usage = { calls: 4, input: 100, cachedInput: 0, output: 20, reasoning: 0 }
    const unfinished = { attempts: 2, waitForGroup, usage, costUsd: 1, costUnknown: 0 }
    expect(summaryText(sampleSummary({ unfinished }), frame)).toMatch(expected)
  })

  it.each([
    [undefined, /tokens +1k in · 200 out +│/],
    [10, /tokens +1k in · 200 out · estimated +│/],
    [3, /tokens +1k in · 200 out · 30% of calls estimated +│/],
  ])('shows which tokens are estimated: %j of 10 calls', (estimated, expected) => {
    const usage = { calls: 10, input: 1000, cachedInput: 0, output: 200, reasoning: 0 }
    const shown = sampleSummary({ usage: estimated === undefined ? usage : { ...usage, estimated } })
    expect(summaryText(shown, frame)).toMatch(expected)
  })

  it('counts the replies with tokens, if tokens were requested', () => {
    const usage = { calls: 10, input: 1000, cachedInput: 0, output: 200, reasoning: 0 }
    expect(summaryText(sampleSummary({ usage: { ...usage, captured: 7 } }), frame)).toMatch(
      /captured +token ids and log-probabilities of 7 of 10 replies +│/,
    )
    expect(summaryText(sampleSummary({ usage }), frame)).not.toContain('captured')
  })

  it('counts drift, and names the flag that avoids it', () => {
    const usage = { calls: 500, input: 1000, cachedInput: 0, output: 200, reasoning: 0, captured: 500 }
    const drifted = { ...usage, laterTurns: 380, driftedTurns: 12, driftedTokens: 1_234 }
    const text = summaryText(sampleSummary({ usage: drifted }), frame)
    expect(text).toMatch(/drift +12 of 380 later turns · 1\.23k tokens affected +│/)
    expect(text).toContain('Exact tokens (--exact-tokens) keep conversations in one row.')
    const exact = summaryText(sampleSummary({ usage: { ...usage, laterTurns: 1 } }), frame)
    expect(exact).toMatch(/drift +0 of 1 later turn +│/)
    expect(exact).not.toContain('--exact-tokens')
    expect(summaryText(sampleSummary({ usage }), frame)).not.toContain('drift')
  })

  it('lists components if there are more than the reward itself', () => {
    const components = {
      exact: { mean: 0.75, rollouts: 300, weight: 0.5 },
      retries: { mean: 1.5, rollouts: 20, weight: 0 },
    }
    const text = summaryText(sampleSummary({ components }), frame)
    expect(text).toMatch(/exact +0\.750 +0\.5 +300/)
    expect(text).toMatch(/retries +1\.500 +metric +20/)
    expect(summaryText(sampleSummary(), frame)).not.toContain('components')
  })

  it('does not report a run as complete if it has more tasks than this launch', () => {
    const open = summaryText(sampleSummary({ state: 'unfinished' }), frame)
    expect(open).toContain('unfinished, can be continued')
    const gone = sampleSummary({ state: 'unfinished', missingTasks: 2 })
    expect(summaryText(gone, frame)).toContain(
      '2 tasks of this run are missing in its source: restore the tasks to finish it',
    )
  })
})
