"""What goes wrong in the tasks of the problem sets, in the words that are read after a try that went wrong.

A set's checks hold a short name and the value that a mistake gives; the words stand here, so that the cells of
checks do not answer their task.
"""

PITFALLS = {
    "1-beaten_share-1": (
        "DIVIDED BY G: the ranks are right, but an item is no competitor of itself, so there are G - 1."
    ),
    "1-cautious_ranks-1": (
        "POSITIVES AND NEGATIVES EXCHANGED: here a tied positive counts as ahead and a tied negative as "
        "behind."
    ),
    "1-ranks_of_the_others-1": (
        "THE QUERY LEFT IN, and ranked: its place in its own ranking should be 0, and the others move up by "
        "one."
    ),
    "1-six_scores-1": "NO TIES AT ALL: both sums are 21.",
    "1-six_scores-2": "ONE TIE OF THREE: it adds 3 to the sum. One more is missing.",
    "1-six_scores_best-1": "the best item is tied, and is to stand alone.",
    "2-precision_notes-1": (
        "THE LIST UPSIDE DOWN: the precisions are right, but the best place comes first in the answer."
    ),
    "2-precision_notes-2": "PRECISION AT EVERY PLACE: only the places that hold a positive get a note.",
    "2-precision_notes-3": "RECALL FOR PRECISION: divide by the places so far, not by the positives.",
    "2-precision_notes-4": "THE FIND ITSELF NOT COUNTED: it is one of the positives so far.",
    "2-discounted_ap-1": (
        "DIVIDED BY THE NUMBER OF POSITIVES: here the weights do not sum to it, divide by their sum."
    ),
    "2-discounted_ap-2": (
        "DISCOUNTED BY PLACE: the exponent counts the positives found so far, not the places walked."
    ),
    "2-discounted_ap-3": (
        "THE EXPONENT OFF BY ONE, and the weights not divided out: the first positive has the weight 1."
    ),
    "2-discounted_ap-4": "NO DISCOUNT: this is plain AP.",
    "2-weighted_ap-1": "DIVIDED BY THE NUMBER OF POSITIVES: here it is the weights that have to be divided out.",
    "2-weighted_ap-2": "NO WEIGHTS: every positive counted alike.",
    "2-weighted_ap-3": (
        "WEIGHTS IN THE RANKS: an item ahead counts once, whatever it weighs; only the outer mean is "
        "weighted."
    ),
    "2-weighted_ap-4": (
        "ZERO FOR NO POSITIVES: a query without positives has no AP; 0 would count it as a failure."
    ),
    "2-other_cameras_map-1": (
        "SAME CAMERA COUNTED AS NEGATIVE: these pictures are not negatives, they are not there at all."
    ),
    "2-other_cameras_map-2": (
        "SAME CAMERA COUNTED AS POSITIVE: a picture of the same car by the same camera earns nothing."
    ),
    "2-other_cameras_map-3": (
        "EVERY SAME CAMERA REMOVED: only pictures of the same car by the same camera vanish, other cars of "
        "that camera stay as negatives."
    ),
    "2-other_cameras_map-4": (
        "ZERO FOR NO POSITIVES: the car that is seen once has no AP; leave it out of the mean."
    ),
    "2-lowest_ap-1": (
        "THE FIRST PLACE LOST: this is the lowest AP of all rows, but here the first place is known to be "
        "right."
    ),
    "2-lowest_ap-2": (
        "THE HITS NOT COUNTED: the precision at the k-th positive is k over its place, not 1 over its place."
    ),
    "2-lowest_ap-3": "THE LAST POSITIVE LEFT OUT: range(a, b) ends before b.",
    "2-two_rows-1": "ORDER OF THE ANSWER: the row with a positive at place 1 comes first.",
    "2-two_rows_ap-1": "NO POSITIVES: two empty rows have the same AP, and say nothing.",
    "3-leading_step-1": "THE LEAD THE WRONG WAY ROUND: a tie must count less than one half.",
    "3-leading_step-2": (
        "THE LEAD OUTSIDE THE TEMPERATURE: delta is a lead in score units and is divided by tau, too."
    ),
    "3-leading_step-3": "NaN: exp overflowed on the way. torch.sigmoid does not.",
    "3-soft_places-1": (
        "HALF FOR ITSELF: 0.5 + sum is right only for a step that is one half at zero. This step gives an "
        "item compared with itself something else."
    ),
    "3-soft_places-2": "THE ONE FORGOTTEN: nobody ahead means place 1, not 0.",
    "3-soft_places-3": "NO LEAD: delta is missing.",
    "3-soft_places-4": "HALF FOR ITSELF: 0.5 + sum is right only for a step that is one half at zero.",
    "3-soft_places-5": (
        "SUMMED ALONG THE OTHER SIDE: the sum runs over the competitors j; and every item was compared with itself as "
        "well."
    ),
    "3-two_temperatures-1": (
        "TEMPERATURES EXCHANGED: the kind of the competitor (the column) decides, and positives get "
        "tau_positive."
    ),
    "3-two_temperatures-2": (
        "THE ITEM DECIDED, NOT ITS COMPETITOR: the temperature belongs to the kind of the column j."
    ),
    "3-two_temperatures-3": (
        "ZERO FOR NO POSITIVES: the query without positives has no AP; leave it out of the mean."
    ),
    "3-two_temperatures-4": "NaN: a query without positives is 0 / 0; keep that out of the division.",
    "3-reach-1": "THE SQUARE FORGOTTEN: the slope falls with the square of cosh.",
    "3-reach-2": "HALF THE REACH: it is x / (2 tau) inside cosh.",
    "3-reach-3": "THE LESSON'S BOUND: 0.5 is a share of the largest slope, not a slope.",
    "3-largest_tau-1": "THE SMALLEST: the rule asks for the largest temperature that is close enough.",
    "3-largest_tau-2": "THE FIRST THAT FITS: taus come in any order.",
    "3-largest_tau-3": "THE LAST THAT FITS: taus come in any order.",
    "3-largest_tau-4": "NOTHING FOUND: the query without positives makes the maximum NaN. Leave it out.",
    "3-largest_tau-5": "MEAN FOR MAXIMUM: the worst query decides.",
    "3-largest_tau-6": "STOPPED AT THE FIRST THAT FAILS: the error need not grow steadily, try all.",
    "3-largest_tau-7": "THE ERROR WITHOUT ITS SIGN TAKEN OFF: Smooth-AP can be above AP and below it.",
    "3-largest_tau-8": (
        "STRICTLY BELOW: at most the limit means <=, an error that equals the limit is close enough."
    ),
    "3-draw_over_tau-1": "TAUS SORTED, VALUES NOT: each value belongs to its own tau.",
    "3-draw_over_tau-2": "NO TAU ON THE AXIS: axes.plot(x, y) needs the taus as x, or the places 0, 1, 2 stand there.",
    "3-draw_over_tau-3": "NO TAU ON THE AXIS: axes.plot(x, y) needs the taus as x, or the places 0, 1, 2 stand there.",
    "3-draw_over_tau-4": "ONE MEASURE FOR BOTH LINES: each label has a function of its own.",
    "3-two_pairs-1": (
        "THE POSITIVE AHEAD: in both pairs the negative has to be ahead; the order in a pair is (positive, "
        "negative)."
    ),
    "4-step_slope-1": "PI FORGOTTEN: the step climbs from 0 to 1, the arc tangent from -pi/2 to pi/2.",
    "4-step_slope-2": "TAU WHERE IT DOES NOT BELONG: x is divided by tau inside the square, too.",
    "4-step_slope-3": "THE SIGMOID'S SLOPE: G (1 - G) / tau belongs to the step of the lesson.",
    "4-soft_counts-1": "NEGATIVES ALONE BELOW THE LINE: R counts everybody ahead, positives too.",
    "4-soft_counts-2": "THE SIGMOID: the step of this set is an arc tangent.",
    "4-weights-1": "THE MEAN FORGOTTEN: J is a mean over positives, 1 / |P| belongs to every weight.",
    "4-weights-2": "THE GRADIENT OF -J: J is maximised, a negative asks to be pushed down.",
    "4-weights-3": "THE LESSON'S OBJECTIVE: these are the weights of the mean of A / R, not of its logarithm.",
    "4-push-1": "NOBODY PAYS: a raised competitor is a lowered item. Take the row sums from the positives.",
    "4-push-2": "ONLY PAYING: the column sums are missing.",
    "4-push-3": "PAID TWICE THE WRONG WAY: the row sums are subtracted, not added.",
    "4-push-4": "COLUMN SUMS PAID BACK: a positive pays the sum of its own row, which is what it was asked for.",
    "4-log_precision-1": "THE GRADIENT OF -J: J is to be maximised; whoever minimises takes -J later.",
    "4-log_precision-2": (
        "WHAT ARRIVES IS IGNORED: backward gets the derivative of everything above and has to multiply with "
        "it."
    ),
    "4-through_the_length-1": (
        "THE PROJECTION FORGOTTEN: a change along u changes nothing, that part of g has to go."
    ),
    "4-through_the_length-2": "THE LENGTH FORGOTTEN: a long u turns less than a short one; divide by its length.",
    "4-through_the_length-3": "RHO FORGOTTEN: q is rho times as long, and so is its reaction.",
    "4-through_the_length-4": "PROJECTED WITH q: (I - q q^T) is a projection only where q has length 1.",
    "5-toy_ranks-1": (
        "ARGSORT ONCE, and from 0: argsort says which item stands at each place. You want the place of each "
        "item."
    ),
    "5-toy_value-1": "ranks of the farthest first: here the nearest item has rank 1.",
    "5-toy_extreme-1": (
        "the answer for scores. With distances the large numbers go to the large distances, and that makes "
        "the sum large."
    ),
    "5-backward_rule-1": "DIVIDED BY n: that belongs to ranks divided by n. Whole ranks are asked for here.",
    "5-percentiles-1": "ranks over n, the lesson's convention; a percentile is (rank - 1) / (n - 1).",
    "5-percentiles-2": "whole ranks; a percentile is (rank - 1) / (n - 1).",
    "5-first_lambda-1": "gain over gap. It must be gap over gain: a wider gap needs a larger lambda.",
    "5-first_lambda-2": "the gap alone. An item with g = .2 gains only .2 lambda.",
    "5-first_lambda-3": "the difference the wrong way round: the item behind has the larger distance.",
    "5-first_lambda-4": (
        "only items that gain. An item may also fall behind: what counts is the difference g_j - g_i, not the"
        " sign of g_j."
    ),
    "5-to_percentiles-1": "the same lambda on both scales: it is not.",
    "5-to_percentiles-2": "n - 1 twice: one for the shorter steps or one for the steeper loss, not both.",
    "5-choose_lambda-4": (
        "no lambda found, or no `return`: an item that moves has a gradient, whether it comes nearer or falls back."
    ),
    "5-choose_lambda-1": "a lambda that is too small: at .5 only two of five items have a gradient.",
    "5-choose_lambda-2": (
        "the largest lambda. 4 reaches half of the items too, but the smallest such lambda was asked for."
    ),
    "5-choose_lambda-3": "more than the share. 1 reaches two of four items, which is at least half of them.",
    "5-draw_reached-1": "how many, and not which share: divide by the number of items.",
    "5-draw_reached-2": "the share without a gradient.",
    "5-draw_reached-3": "only slopes above 0: an item that is pushed away has a gradient, too.",
    "5-recall_cost-1": "W(r) = log(1 + r), the lesson's weight; here W(r) = sqrt(r).",
    "5-recall_cost-2": "W(r) = r; here W(r) = sqrt(r).",
    "5-recall_cost-3": (
        "no margin, or half of it: positives move away by half of it AND negatives come nearer by half."
    ),
    "5-recall_cost-4": "twice the margin: the shift is half of it on either side.",
    "5-recall_cost-5": "a query without positives, 0 / 0. It must be left out.",
    "5-recall_cost-6": "a sum within each query: average over its positives first.",
    "5-extended-1": "the newest list last. It comes first.",
    "5-extended-2": "the oldest batch kept. A memory keeps the latest ones.",
    "5-extended-3": "the first batches of the list, which are the oldest: the newest is the last.",
    "5-extended-4": (
        "rows stacked as further queries, which changes the average and nothing else; the list itself must "
        "become longer."
    ),
    "5-extended-5": "no memory at all: keep = 1 asks for one older batch.",
    "5-extended-6": "everything kept: keep = 1 asks for one older batch.",
    "5-extended-7": "the positives of other batches, or in another order, than the distances.",
    "5-extended-8": "the positives of the oldest batches.",
    "5-extended-9": "an old batch that gets a gradient: its graph is gone or stale, so detach it.",
    "5-extended-10": "everything detached: the newest batch needs its gradient.",
    "5-extended-11": (
        "the memory turned round in place: reverse() turns the list itself, reversed(batches) or [::-1] makes"
        " another."
    ),
    "6-h_ranks_by_hand-1": "max for min: what two items have in common is the smaller of their worths.",
    "6-h_ranks_by_hand-2": "the item's own worth left out: H-rank starts from rel(k).",
    "6-h_ranks_by_hand-3": (
        "the full worth of everybody ahead: an item shares only min(rel(k), rel(j)) with a more relevant one."
    ),
    "6-h_ranks_by_hand-4": (
        "the ordinary rank among the positives: each competitor adds what it has in common with the item."
    ),
    "6-h_ranks_by_hand-5": "levels in place of worths: an item of level l is worth l * l.",
    "6-h_ap_by_hand-1": "the mean over the four positives: H-AP divides by the total worth, 15.",
    "6-h_ap_by_hand-2": "the H-AP of worth l instead of l * l.",
    "6-level_sizes-1": (
        "the query in its own level: it shares all levels with itself, and is no member of its own gallery."
    ),
    "6-level_sizes-2": "each column on its own: an image shares a level only if it shares all coarser ones.",
    "6-level_sizes-3": "levels counted as 'at least': an image of level 3 was counted at levels 1 and 2 too.",
    "6-steepest_needed-1": "the two sizes swapped: the crowded level is the one that needs help.",
    "6-steepest_needed-2": "sizes swapped, then cut off at 0.",
    "6-steepest_needed-3": "the logarithm of the levels forgotten: (2/1)^alpha = 5.",
    "6-steepest_needed-4": "an alpha below 0: with a rare fine level alpha = 0 is enough.",
    "6-steepest_needed-5": "an empty level that was asked for something: skip it and compare its neighbours.",
    "6-strict_h_ap-1": "negatives that count once, the ordinary rank.",
    "6-strict_h_ap-2": "the number of positives below the line: divide by the total relevance.",
    "6-strict_h_ap-3": "a query without positives counted as 0: it has no H-AP.",
    "6-upper-1": "a line that starts at 0: there the step drops from 1 to 0, below H.",
    "6-upper-2": "a line with slope tau: the slope of exp(t / tau) at 0 is 1 / tau.",
    "6-upper-3": "the exponential for t > 0 too: it was to continue straight on.",
    "6-lower-1": "no cut at all: for t > 0.075 the line is above 1.",
    "6-lower-2": "the upper branch for every t: below 0 the slope is 4.",
    "6-violation-1": "the wrong side: a lower step may not exceed H.",
    "6-violation-2": "the sign turned: 0 is a bound, more than 0 is a violation.",
    "6-draw_steps-1": "ONE STEP FOR BOTH LINES: each label has a function of its own.",
    "6-draw_steps-2": "the lines are drawn from right to left: the height belongs to t, not to -t.",
    "7-ap_of_the_whole-1": "the place itself: with one positive AP is one over its place.",
    "7-ap_of_the_batch-1": "the AP of the expected place. The mean of 1/(1 + X) is not 1/(1 + mean of X).",
    "7-ap_of_the_batch-2": "draws with replacement: the batch takes two different negatives.",
    "7-ap_of_the_batch-3": (
        "a mean over the three cases as if they were equally likely: four of the six pairs have one negative "
        "ahead."
    ),
    "7-ap_of_the_batch-4": "the AP of the whole: in a batch some of the negatives ahead are simply absent.",
    "7-expected_ap-1": "draws without replacement, the lesson's formula: here each negative may come twice.",
    "7-expected_ap-2": "the AP of the whole gallery.",
    "7-balanced_map-1": "a plain mean over all queries: average within each class first, then over the classes.",
    "7-balanced_map-2": "the query left in, and with it the lone image of class 2, which finds itself.",
    "7-balanced_map-3": "the lone image of class 2 counted as 0: it has nothing to find, leave it out.",
    "7-balanced_map-4": "a query that has nothing to find, 0 / 0: leave class 2 out.",
    "7-balanced_map-5": (
        "the query at the end of its own row: it has a low score there and still counts as a positive, found last."
    ),
    "7-batch_bias-1": "the difference the wrong way round: the batch first, the whole is taken away.",
    "7-batch_bias-2": (
        "batches of two images: `classes` is the number of classes, and all their images come along."
    ),
    "7-batch_bias-3": "the mean over the batches alone: take away the value on everything.",
    "7-draw_bias-1": "ONE NETWORK FOR BOTH LINES: each label has embeddings of its own.",
    "7-draw_bias-2": "NO CLASSES ON THE AXIS: axes.plot(x, y) needs the sizes as x, or the places 0, 1, 2 stand there.",
    "7-draw_classes-1": "draws in proportion to the size: take its square root.",
    "7-draw_classes-2": "uniform draws, whatever the size.",
    "7-draw_classes-3": "draws in proportion to one over the square root.",
    "7-draw_classes-4": "draws in proportion to the squared size.",
    "8-multiply_adds-1": "the weights alone: each is used at every position.",
    "8-multiply_adds-2": "one position too few on each side: the padding keeps the side.",
    "8-multiply_adds-3": "the kernel's side where its area is needed.",
    "8-multiply_adds-4": "the stride forgotten: the second layer sees four positions on a side, not seven.",
    "8-multiply_adds-5": "the side rounded down: with stride 2 seven positions become four, not three.",
    "8-training_cost-1": "the forward pass alone: the way back takes twice as many again.",
    "8-training_cost-2": "the way back alone.",
    "8-training_cost-3": "one image of each class: a batch holds classes times images.",
    "8-training_cost-4": "classes plus images: a batch holds classes times images.",
    "8-gain-1": "the difference the wrong way round: the new one first.",
    "8-gain-2": "a mean over characters: mAP is a mean over queries.",
    "8-gain-3": "queries resampled one by one: the ten queries of a character are not ten independent witnesses.",
    "8-gain-4": "the quantiles of 5% and 95%: an interval of 95% lies between 2.5% and 97.5%.",
    "8-gain-5": "a mean of means: a character with many queries must weigh more in a resample, too.",
    "8-draw_gains-1": "the size of the lower end, without its sign.",
    "8-draw_gains-2": "from 0 to the mean: the interval goes from low to high.",
    "8-draw_gains-3": "from low to the mean: the interval goes from low to high.",
    "10-area_ap-1": (
        "DIVIDED BY THE POSITIVES THAT ARE SHOWN: those that the list does not show count too, and are not "
        "found."
    ),
    "10-area_ap-2": "THE PRECISION AS PRINTED: y_k added k times over k is 1 at every find. Count the finds so far.",
    "10-area_ap-3": (
        "AN AVERAGE OVER ALL PLACES: the recall does not grow where no positive stands, so that place adds "
        "nothing."
    ),
    "10-area_ap-4": "THE FIND ITSELF NOT COUNTED: the precision at a find contains that find.",
    "10-area_ap-5": "THE DIVISION FORGOTTEN: recall grows by 1 over all positives at each find.",
    "10-positive_ranks-1": (
        "THE OVERALL RANK: negatives are competitors here, too. A place among the positives asks positives only."
    ),
    "10-positive_ranks-2": "THE NEGATIVES RANKED TOO: they have no place among the positives; 0 is asked for.",
    "10-positive_ranks-3": "THE ONE FORGOTTEN: nobody ahead means place 1.",
    "10-positive_ranks-4": (
        "HALF FOR ITSELF: 0.5 + sum is right only for a step that is one half at zero. Leave j = i out."
    ),
    "10-with_itself-1": "AP ITSELF: this is the limit without j = i. The printed sums contain it, in every limit.",
    "10-with_itself-2": "A WHOLE COMPETITOR: a sigmoid is one half at 0, not 1.",
    "10-with_itself-3": "ONLY BELOW THE LINE: the item is a positive, so it is in the upper sum as well.",
    "10-with_itself-4": "ONLY ABOVE THE LINE: the item is in the sum over everybody as well.",
    "10-with_itself-5": "THE HALF TAKEN AWAY: it is added to the 1 and to those ahead.",
    "10-with_itself-6": "THE MEAN FORGOTTEN: AP averages over the positives.",
    "10-property_one-1": (
        "THE READING q = l: every item divides all its shares by the size of its own level, and too much is "
        "handed out."
    ),
    "10-property_one-2": (
        "THE READING q = 1: every share is divided by the number of all positives, and too little is handed out."
    ),
    "10-property_one-3": "THE READING q = L: every share is divided by the size of the finest level.",
    "10-property_one-4": (
        "EXACTLY p FOR p OR FINER: the share of level p goes to all items that reach it, finer ones too."
    ),
    "10-property_one-5": "ONE SHARE ONLY: an item gets the shares of all levels up to its own.",
    "10-two_means-1": "THE TWO EXCHANGED: the paper's mean comes first.",
    "10-two_means-2": "MORE THAN K FOR AT LEAST K: with K negatives ahead the first K places are taken.",
    "10-two_means-3": "THE SHARE THAT IS FOUND: the share missed is asked for.",
    "10-two_means-4": "A SUM OVER THE QUERIES: divide by how many there are.",
    "10-two_means-5": "THE CODE'S MEAN TWICE: the paper averages within each query first.",
    "10-two_means-6": "THE PAPER'S MEAN TWICE: the code makes one long list.",
    "11-comparable-1": "THE METHOD COMPARED AS WELL: network, batch, dimension and year are what the table is for.",
    "11-comparable-2": "P@1 AND R@1 TAKEN FOR TWO: a hit at place 1 is both, whatever the gallery.",
    "11-comparable-3": "MRR TAKEN FOR mAP EVERYWHERE: only where a query has one positive.",
    "11-comparable-4": "query_in FORGOTTEN: who finds himself first has another mAP, and R@1 of 1.",
    "11-comparable-5": "THE GALLERY FORGOTTEN: who may answer decides how hard the question is.",
    "11-comparable-6": "NOTHING IS COMPARABLE: the first four keys decide, the others may differ.",
    "11-comparable-7": (
        "ONE NUMBER TAKEN FOR TWO: with one positive the AP is one over its place, and mAP@R asks for place 1."
    ),
    "11-comparable-8": (
        "THREE NAMES FOR ONE: with one positive mAP is MRR and mAP@R is R@1; these two pairs stay apart."
    ),
    "11-comparable-9": (
        "NOT TOLD TAKEN FOR A DIFFERENCE: what one of them does not say cannot differ; it can only be unknown."
    ),
    "11-comparable-10": "THE METHOD ASKED FOR: only the first four keys have to be told.",
    "11-comparable-11": "mAP@R TAKEN FOR A THIRD NUMBER: with one positive R is 1, so it asks for place 1 alone.",
    "11-comparable-12": "mAP@R TAKEN FOR mAP: with one positive R is 1, so it asks for place 1 alone.",
    "11-comparable-13": "WHAT IS MISSING TAKEN FOR EQUAL: nobody knows whether it is.",
    "11-comparable-14": "NOT TOLD BEFORE NO: one difference is enough, whatever else is missing.",
    "11-comparable-15": "BOTH SILENT TAKEN FOR EQUAL: what neither of them tells is not told.",
    "11-one_gallery_recall-1": "ALL PICTURES ASKED: a picture of the gallery finds itself. Only the others ask.",
    "11-one_gallery_recall-3": "DIVIDED BY ALL PICTURES: the mean is over those that ask.",
    "11-one_gallery_recall-4": "ALL OTHERS ANSWERED: the gallery holds one picture of each class, and nobody else.",
    "11-one_gallery_recall-5": "TIES IN FAVOUR: an other class with the same score is ahead here.",
    "11-one_gallery_recall-6": (
        "TIES BY POSITION: argmax takes the first of equals, so the order of the gallery decides."
    ),
    "11-one_gallery_recall-7": (
        "A LONE CLASS LEFT OUT: its picture asks nothing, and it still stands in the way of others."
    ),
    "11-revisited_ap-1": "NOBODY DELETED: what is ignored took a place. Take it out of the ranking first.",
    "11-revisited_ap-2": "TRAPEZOIDS: the official average; here ordinary AP is asked for.",
    "11-revisited_ap-3": "ONLY JUNK DELETED: easy pictures are ignored in \"hard\", and hard ones in \"easy\".",
    "11-revisited_ap-4": "JUNK NEVER LOOKED FOR: in the setup \"any\" it is.",
    "11-revisited_ap-5": "DIVIDED BY THOSE FOUND: a positive that the ranking does not hold counts below the line.",
    "11-revisited_ap-6": "ZERO FOR NO POSITIVES: nothing is to be found, so there is no AP.",
    "11-at_k-1": (
        "PRECISION AND SHARE EXCHANGED: precision is of the K that are shown, the share is of those that exist."
    ),
    "11-at_k-2": "THE SHARE FOR THE HIT RATE: the papers' R@K is 1 as soon as there is one.",
    "11-at_k-3": "ONE PLACE TOO FEW: the first K places are meant, the K-th too.",
    "11-at_k-4": "HITS COUNTED FOR A HIT RATE: it is 1 or 0.",
    "11-at_k-5": "DIVIDED BY THE POSITIVES THAT ARE SHOWN: `total` exist, whoever shows them.",
    "11-at_k-6": "NOT CAPPED: of nine positives two places can hold two at most.",
    "11-at_k-7": "DIVIDED BY THE LENGTH OF THE LIST: a list too short has wasted the other places.",
    "11-at_k-8": "CAPPED THE WRONG WAY: the most that there could be is the smaller one of K and total.",
    "11-top_one-1": "WORST AND BEST EXCHANGED: worst needs every candidate to be a positive.",
    "11-top_one-2": "EVEN CHANCES FOR EVERY TIE: the chance is the share of positives among those at the top.",
    "11-top_one-3": "WORST, TOO STRICT: if all who are tied at the top are positives, it is a hit in every order.",
    "11-top_one-4": "THE ORDER OF THE COLUMNS: argmax takes the first of equals. Count them all.",
    "11-top_one-5": "BEST FROM THE SURE ONES: one positive among those at the top is enough for the best.",
    "11-top_one-6": "THE EXPECTED VALUE OF THE WORST: a tie that holds a positive is worth its share.",
    "11-top_one-7": "NaN: the query without positives has to leave the mean.",
    "11-top_one-8": "ALL CANDIDATES IN ONE POT: each query has its own share; average afterwards.",
    "9-cached_gradient-1": (
        "PIECES ALONE: every piece was ranked by itself. The loss has to see the rows of all of them at once."
    ),
    "9-cached_gradient-2": (
        "THE MEAN OF THE PIECES: every piece was ranked by itself. The loss has to see the rows of all of them "
        "at once."
    ),
    "9-cached_gradient-3": "TWICE THE GRADIENT: the first pass kept its graph, and both ways back were added up.",
    "9-cached_gradient-4": (
        "THE LOSS'S OWN PARAMETERS LEFT OUT: torch.autograd.grad by the rows gives them nothing; backward() "
        "does."
    ),
    "9-cached_gradient-5": "THE SECOND PASS LEFT OUT: the rows got their gradient, and the network has not.",
    "9-cached_gradient-6": "NO GRADIENT AT ALL: was something detached, or the way back run under no_grad?",
    "9-cached_gradient-7": (
        "OVERWRITTEN: what stood in .grad before was lost; backward() adds, zero_grad() and an assignment do "
        "not."
    ),
    "9-cached_gradient-8": "THE NETWORK'S .grad OVERWRITTEN: what stood there before was lost; backward() adds.",
    "9-cached_gradient-9": "THE LOSS WENT BACK TWICE: its own parameters got their gradient two times.",
    "9-ages-1": "COUNTED FROM 0: a row of the step before has age 1; today's rows are not in the memory yet.",
    "9-ages-2": "WHOLE BATCHES ONLY: of the batch that no longer fits a part stays.",
    "9-ages-3": "OLDEST FIRST: the newest was asked for first.",
    "9-ages-4": "NOT CUT OFF: the memory holds `size` rows, no more.",
    "9-ages-5": "STEPS FROM THE END OF THE LIST, AND FROM 1: an age is how many steps ago, not which step.",
    "9-ages-6": "THE STEP FOR THE AGE: an age is how many steps ago, not which step.",
    "9-ages-7": "ONE STEP TOO MANY: the rows of a step are put in after its loss, so step 2 finds those of two steps.",
    "9-turned_pairs-1": (
        "THE DIAGONAL COUNTED AS PAIRS: an item with itself is no pair; G (G - 1) of the table's cells are."
    ),
    "9-turned_pairs-2": "HALVED ONCE TOO OFTEN: the table holds every pair twice, above and below the line.",
    "9-turned_pairs-3": "A SUM OVER THE QUERIES, or every pair twice: divide by how many there are.",
    "9-turned_pairs-4": "THE SHARE THAT IS KEPT: the share turned round is asked for.",
    "9-turned_pairs-5": "A NUMBER FOR A SHARE: divide by the number of pairs.",
    "9-turned_pairs-6": "A TIE COUNTED AS A WHOLE TURN: tied in one of both counts one half.",
    "9-turned_pairs-7": "TIES NOT COUNTED: tied in one of both counts one half.",
    "9-held-1": "THE GRADIENT OF THE ROWS FORGOTTEN: the cache keeps the rows and their gradient.",
    "9-held-2": "NUMBERS FOR BYTES: each has four.",
    "9-held-3": "MEGABYTES OF 2^20 BYTES: those of 10^6 are asked for.",
    "9-held-4": "THE MEMORY NOT RANKED: the table has a column for every row of the memory, too.",
    "9-held-5": "THE ACTIVATIONS OF ALL: the cache holds those of one piece at a time.",
    "9-held-6": "THE TABLE OF SCORES FORGOTTEN.",
    "9-held-7": "BYTES FOR MEGABYTES: divide by 10^6.",
    "9-largest_batch-1": "THE ROWS FORGOTTEN: B rows and their gradient are held beside the table.",
    "9-largest_batch-2": "THE TABLE FORGOTTEN: B times B scores are held beside the rows.",
    "9-largest_batch-3": "ROUNDED UP: one picture more than fits.",
    "9-largest_batch-4": "BYTES FOR NUMBERS: each number has four bytes.",
    "9-largest_batch-5": "D NOT TAKEN AWAY: the square is that of B + D.",
    "9-largest_batch-6": "HALF OF 2 D MISSING: the rows and their gradient are 2 B D, so the square is that of B + D.",
    "9-largest_batch-7": "THE ACTIVATIONS FORGOTTEN: those of one piece are held in any case.",
    "9-largest_batch-8": "ONE TOO FEW: within the budget means that it may be used up to the last byte.",
    "9-largest_batch-9": "ROUNDED BY A FLOAT: math.sqrt has sixteen digits, math.isqrt has all.",
    "12-codes-1": "SIGNS FIRST: a large residual and a small one then weigh the same. Add up first, then take signs.",
    "12-codes-2": "ZERO TAKEN FOR -1: a sum of exactly 0 abstains here.",
    "12-codes-3": "ZERO TAKEN FOR 1: a sum of exactly 0 abstains here.",
    "12-codes-4": "THE SUMS THEMSELVES: signs are asked for.",
    "12-codes-5": "THE FIRST PATCH ALONE: all residuals of a word are added up.",
    "12-codes-6": "THE LAST PATCH ALONE: all residuals of a word are added up.",
    "12-asmk-1": "THE THRESHOLD FORGOTTEN: a weak similarity counts nothing.",
    "12-asmk-2": "DIVIDED BY THE NUMBER OF WORDS: a code that abstains has a smaller product with itself.",
    "12-asmk-3": "NOT NORMALISED: divide by the root of both pictures' kernels with themselves.",
    "12-asmk-4": "ALPHA FORGOTTEN: a similarity counts u to the power of alpha.",
    "12-asmk-5": "DIVIDED BY THOSE WHO DO NOT ABSTAIN: the product is divided by D.",
    "12-asmk-6": "THE ROOT FORGOTTEN: divide by the root of the product.",
    "12-asmk-7": "DIVIDED BY THE NUMBER OF WORDS, and no threshold.",
    "12-asmk-8": "NOT DIVIDED BY D: u lies between -1 and 1.",
    "12-asmk-9": "NaN: a root is 0; the kernel is 0 then.",
    "12-search-1": "THE WEIGHT FORGOTTEN: a word that everybody holds says nothing.",
    "12-search-2": "ALL ENTRIES READ: only the lists of the query's words are opened.",
    "12-search-3": "LISTS COUNTED FOR ENTRIES: a list has as many entries as pictures hold its word.",
    "12-search-4": "THE QUERY COUNTED AS AN IMAGE: N and the number of holders are those of the index.",
    "12-search-5": "ALPHA FORGOTTEN: a similarity counts u to the power of alpha.",
    "12-search-6": "ONLY ENTRIES THAT GAVE A SCORE: those with u = 0 were read as well.",
    "12-search-7": "OPPOSITE CODES COUNTED: an even power forgets the sign; max(u, 0) comes first.",
    "12-search-8": "ANOTHER LOGARITHM: the natural one is asked for.",
    "12-one_point-1": "PAIRS COUNTED FOR WITNESSES: patches that all match one window are one witness.",
    "12-one_point-2": (
        "THE SCALE THE WRONG WAY, or left out: ratio is the candidate's scale over the query's, and multiplies p "
        "- a."
    ),
    "12-one_point-3": "THE LAST OF EQUALS: the first proposal with the most witnesses is asked for.",
    "12-one_point-7": "STRICTLY NEARER: at most the tolerance means <=.",
    "12-one_point-8": "ONE SIDE COUNTED: the smaller one of both numbers is asked for.",
    "12-caption_recall-1": "THE TWO DIRECTIONS EXCHANGED: a row is a picture that ranks captions.",
    "12-caption_recall-3": (
        "THE CAPTIONS IN ANOTHER ORDER: captions n i to n i + n - 1 belong to picture i, that is c // n and not "
        "c % B."
    ),
    "12-caption_recall-4": "THE SHARE OF ITS CAPTIONS: a picture counts as soon as its best caption is found.",
    "12-caption_recall-5": "THE WORST OF ITS CAPTIONS: the best one is enough.",
    "12-caption_recall-6": "ONE PLACE TOO FEW: the first K places are meant, the K-th too.",
    "12-caption_recall-7": "ONE PLACE TOO MANY: who has K ahead of him stands at place K + 1.",
    "12-caption_recall-8": "TIES IN FAVOUR: who is foreign and has the same score is ahead.",
    "12-caption_recall-9": "TIES BY POSITION: a sort decides by the order in memory; here every tie counts against.",
    "12-caption_recall-10": "A TIE WITH ITS OWN: only foreign captions are in the way of the best own one.",
    "12-caption_loss-1": (
        "A MEAN OVER ALL CAPTIONS: a picture with three captions weighed three times as much; average within it "
        "first."
    ),
    "12-caption_loss-2": "THE HALVES FORGOTTEN: each direction counts one half.",
    "12-caption_loss-3": "ONE DIRECTION ONLY: captions look for their picture, too.",
    "12-caption_loss-4": "ONE DIRECTION ONLY: pictures look for their captions, too.",
    "12-caption_loss-5": "j = i NOT MASKED: every item was compared with itself as well.",
    "12-caption_loss-6": "THE VALUE FOR THE LOSS: a loss is 1 - value.",
    "12-caption_loss-7": "NaN: the picture without a caption has to leave both means.",
    "12-caption_loss-8": "NaN IN THE GRADIENT: the picture without a caption is 0 / 0; keep it out of the division.",
    "12-caption_loss-9": "NO GRADIENT: the graph was lost on the way (float(...), .item(), .detach(), numpy).",
    "12-caption_loss-10": "THE PICTURE WITHOUT CAPTIONS COUNTED AS 0: it has to leave both means.",
    "12-caption_loss-11": (
        "THE PICTURE WITHOUT CAPTIONS REMOVED: it looks for nothing, and still competes for the captions of "
        "others."
    ),
}
